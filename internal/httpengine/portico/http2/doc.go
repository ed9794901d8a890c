// Package http2 implements HTTP/2 (RFC 9113) on both sides of the proxied path: package server for clients, client for
// backends, and frame for both.
//
// # Why not golang.org/x/net/http2
//
// Connections of golang.org/x/net/http2 pass each request between goroutines: one reads frames, one decides, one writes,
// and one is started for each stream with a stack that has to grow. On the proxied path that costs more than the rest of
// Portico's work for a request. In this package the goroutine of a request writes its frames, or leaves them to a goroutine
// that is writing to the same connection, so that under load one system call carries the responses of many requests.
// HPACK's Huffman decoder is the one of golang.org/x/net/http2/hpack.
//
// # Guarantees
//
// All data that a peer can make this package retain is limited: streams, bytes in windows, headers, and frames that require
// a reply. A protocol violation ends the stream or the connection with the error code of RFC 9113. The tests in this
// directory apply the same cases to this server, this client, and golang.org/x/net/http2.
package http2
