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
