// Package http2 is HTTP/2 (RFC 9113) on both sides of the proxied path: serve is what clients meet, client is how we meet
// backends, and wire is what both have in common.
//
// # Why our own
//
// The library's connections hand each request from goroutine to goroutine: one reads frames, one decides, one writes, one
// starts for each stream with a stack that has to grow. On the proxied path that costs more than all that we do with a
// request. Here the goroutine of a request writes its own frames, or leaves them to whoever is writing to the same
// connection at that moment, so that under load one system call carries the answers of many requests. HPACK is the
// library's (golang.org/x/net/http2/hpack) where it reads.
//
// # What is promised
//
// Everything that a peer can make us keep is bounded: streams, bytes in windows, headers, frames that ask for an answer.
// What breaks the protocol ends the stream or the connection with the code of RFC 9113. The tests of this directory hold
// this server and this client, and the library's, to the same cases.
package http2
