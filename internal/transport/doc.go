// Package transport is the one door outward: endpoint pools, picking, health, retry budget; probes and fetches use it too.
//
// # What is trusted
//
// Nothing that comes from a Service, an EndpointSlice or DNS is trusted to be a good address. Whoever may write those
// objects could point us at a cloud's metadata service, at a port of the machine we run on, or at ourselves. So the
// address is judged where it can no longer change: in the dialer, after resolution, for each address tried (guard.go).
// Nothing a backend sends before its certificate is verified is used for anything.
//
// # What is checked twice
//
// Whom we talk to is decided by the TLS server name `<service>.<namespace>.svc` and the registered CA, never by the
// address; an endpoint that was slipped into a slice fails the handshake. The same identity is part of the key of a
// Backend, so that connections made under one CA are never used under another, and connections made with an old client
// certificate stop taking requests as soon as the new one is there.
//
// # The short lane
//
// GET and HEAD without a body whose answer is no stream go over HTTP/1.1 connections of our own (short*.go), written and
// read by the goroutine of the request: handing a request over to the goroutines of a library's connection and back costs
// as much as the rest of it. What the library would do is promised here too: interim responses and trailers are read, a
// head is bounded and has one reading or is an error, and a connection carries another request only after a body that was
// read to its end. Before each further request the socket is asked whether something lies in it: an end, or an answer that
// nobody asked for and that would pass for the next one's. HTTP/1.1 has no pings, so the endpoint's HTTP/2 connection
// speaks for it (short_look.go). Writes stay on HTTP/2, since GOAWAY says which of them a server that goes away has not
// looked at; a connection of HTTP/1.1 that closes does not, however lately it was used.
//
// # What is promised to the next room
//
//   - A request reaches one endpoint, or more than one only when the earlier ones provably did nothing with it: the
//     connection was never made, the stream was refused, or the connection said GOAWAY before our stream. GET and HEAD
//     without a body are also repeated when a connection broke before response headers, within a budget.
//   - An error is a *Error that says how far the request got. Its text is for logs: it names endpoints. The proxy says
//     what clients may know.
//   - A silently dead connection is found in less than two seconds, by pings on HTTP/2 and by TCP_USER_TIMEOUT on Linux.
//   - A backend that takes requests and answers none is told of after a second (silence.go).
//   - No redirect is followed, no proxy of the environment is used, no body is decompressed.
//   - Everything is bounded: connections per endpoint, response headers, bytes kept for repeating a request, waiting.
package transport
