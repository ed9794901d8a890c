// Package transport reaches backends: it keeps their endpoints and connection pools, picks an endpoint for each
// request, tracks health and retries. Probes and document fetches use it too.
//
// # What is trusted
//
// Nothing that comes from a Service, an EndpointSlice or DNS is trusted to be a good address. Whoever may write those
// objects could point the server at a cloud's metadata service, at a port of its own machine, or at itself. The address
// is therefore checked where it can no longer change: in the dialer, after resolution, for each address tried
// (guard.go). Nothing that a backend sends before its certificate is verified is used.
//
// # What is checked twice
//
// A backend is identified by the TLS server name `<service>.<namespace>.svc` and the registered CA, never by its
// address; an endpoint that was slipped into a slice fails the handshake. The same identity is part of the key of a
// Backend, so that connections made under one CA are never used under another, and connections made with an old client
// certificate take no more requests once the new one is there.
//
// # How requests are sent
//
// Requests go over HTTP/2 connections that are kept here and whose typed errors say how far a request got
// (engine.ClientConn): Portico's own (internal/http2/client), on which many requests share system calls, or with
// Options.Engine the library's. A backend that does not speak HTTP/2 is reached by net/http's HTTP/1.1 client. Unless
// Options.Engine is the library, its connections validate every response (http1_conn.go): an ambiguous response is
// refused, and bytes that arrived before a request cannot be its response. What the library cannot promise is a table
// in docs/http-engines.md, "Towards backends". A request body of known length up to 32 KiB is buffered before anything
// is sent (buffered_body.go), so that it is sent together with the headers and can be sent again; a longer one is kept
// while it is sent, as far as the replay allowance permits (replay.go). Headers of a short response are held until all
// of it is there; until then the request can be repeated.
//
// One timer of the Set checks the connections every 250 ms (conncheck.go): pings, late headers and idle connections are
// found by counting checks. Of the idle connections to an endpoint one is pinged, the probes' if there is one; when it
// does not answer, the others are closed with it. An endpoint that no client uses is pinged less often.
//
// # What is promised to callers
//
//   - A request reaches one endpoint, or more than one only when the earlier ones provably did nothing with it: the
//     connection was never made, the stream was refused, or the connection said GOAWAY before our stream. GET and HEAD
//     without a body are also repeated when a connection broke or a stream was reset before response headers, or within a short
//     response, within a budget; not after PROTOCOL_ERROR, by which the backend calls the request malformed.
//   - An error is an *Error that says how far the request got. Its text is for logs: it names endpoints. The proxy decides
//     what clients are told.
//   - A silently dead connection is found in less than two seconds, by pings on HTTP/2 and by TCP_USER_TIMEOUT on Linux.
//   - A backend that accepts requests and answers none is reported after a second (silence.go).
//   - No redirect is followed, no proxy of the environment is used, no body is decompressed.
//   - Everything is bounded: connections per endpoint, response headers, bytes kept for repeating a request, waiting.
package transport
