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
// # How requests go out
//
// Over HTTP/2 connections that are kept here, whose errors say by their type how far a request got (engine.ClientConn):
// Portico's own (internal/http2/client), on which many requests share system calls, or with Options.Engine the library's. A
// backend that does not speak HTTP/2 is reached by the library's HTTP/1.1. Unless Options.Engine is the library, that is over
// connections that look at every answer (plain.go): what has more than one reading is none, and nothing that came before a
// request can be its answer. What the library cannot promise is a table in docs/http-engines.md, "Towards backends". A request body of known length up to 32 KiB is read before anything is sent (whole.go), so
// that it goes along with the head, and can be sent again; a longer one is kept while it is sent, as far as the allowance
// lets it (replay.go). The head of a short response waits for the rest: until all of it is there, the request can be
// repeated.
//
// One timer of the Set has the connections looked at every 250 ms (rounds.go): pings, late headers and idle connections are
// found by counting looks. Of the idle connections to an endpoint one is pinged, the probes' if there is one; when it falls
// silent the others are given up with it. Where no client has a connection that is half as often.
//
// # What is promised to the next room
//
//   - A request reaches one endpoint, or more than one only when the earlier ones provably did nothing with it: the
//     connection was never made, the stream was refused, or the connection said GOAWAY before our stream. GET and HEAD
//     without a body are also repeated when a connection broke or a stream was reset before response headers, or within a short
//     response, within a budget; not after PROTOCOL_ERROR, by which the backend calls the request malformed.
//   - An error is a *Error that says how far the request got. Its text is for logs: it names endpoints. The proxy says
//     what clients may know.
//   - A silently dead connection is found in less than two seconds, by pings on HTTP/2 and by TCP_USER_TIMEOUT on Linux.
//   - A backend that takes requests and answers none is told of after a second (silence.go).
//   - No redirect is followed, no proxy of the environment is used, no body is decompressed.
//   - Everything is bounded: connections per endpoint, response headers, bytes kept for repeating a request, waiting.
package transport
