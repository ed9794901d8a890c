// Package faulty is an extension server that fails on demand: it serves a small API over real TLS, and from one moment to
// the next it refuses connections, hangs, answers byte by byte, sends wrong documents or shows a wrong certificate, until it is set to
// be healthy again.
//
// Faults of the network are made where connections are accepted (listener.go), faults of identity in the certificate that is
// shown (identity.go), and faults of the server in its answers (handler.go). What it stores is in memory and can be looked
// at from outside the API (store.go), so that a drill can tell what is really left behind from what clients are told.
package faulty
