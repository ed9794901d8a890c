// Package http2 is HTTP/2 (RFC 9113) on both sides of the proxied path: package server for clients, client for backends,
// and frame for both.
//
// # Why not the library
//
// The library's connections pass each request between goroutines: one reads frames, one decides, one writes, and one is
// started for each stream with a stack that has to grow. On the proxied path that costs more than all that we do with a
// request. Here the goroutine of a request writes its own frames, or leaves them to a goroutine that is writing to the same
// connection, so that under load one system call carries the responses of many requests. HPACK's Huffman decoder is the
// library's (golang.org/x/net/http2/hpack).
//
// # What is promised
//
// Everything that a peer can make us keep is bounded: streams, bytes in windows, headers, and frames that ask for a reply.
// A violation of the protocol ends the stream or the connection with the error code of RFC 9113. The tests of this
// directory hold this server and this client, and the library's, to the same cases.
package http2
