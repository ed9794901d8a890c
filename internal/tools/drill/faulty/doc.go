// Package faulty implements an extension server that fails on demand. It serves a small API over TLS. At any moment
// it can start to refuse connections, hang, respond byte by byte, send wrong documents or present a wrong
// certificate, until it is set to be healthy again.
//
// Network faults are injected in the listener (listener.go), identity faults in the serving certificate
// (identity.go), and server faults in the handlers (handler.go). The store is in memory and can be inspected without
// the API (store.go), so that a drill can compare the objects that really remain with the responses that clients
// receive.
package faulty
