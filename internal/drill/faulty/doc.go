// Package faulty is an extension server that fails on demand: it serves a small API over real TLS, and from one moment to
// the next it refuses, falls silent, drips, lies or shows the wrong certificate, until it is told to be well again.
//
// Faults of the network are made where connections are accepted (gate.go), faults of identity in the certificate that is
// shown (identity.go), and faults of the server in its answers (handler.go). What it stores is in memory and can be looked
// at from outside the API (store.go), so that a drill can tell what is really left behind from what clients are told.
package faulty
