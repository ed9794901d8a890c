// Package transport connects to backends. It maintains their endpoints and connection pools, selects an endpoint for
// each request, tracks health and retries. Probes and document fetches use it too.
//
// # Trust
//
// Addresses from Services, EndpointSlices or DNS are not trusted. A user who can write these objects could direct the
// server to a cloud's metadata service, to a port of its machine, or to the server itself. Therefore the dialer
// checks each address after resolution, when it can no longer change (guard.go). Data that a backend sends before its
// certificate is verified is not used.
//
// # Repeated checks
//
// A backend is identified by the TLS server name `<service>.<namespace>.svc` and the registered CA, never by its
// address. A foreign endpoint in a slice fails the handshake. The identity is also part of the key of a Backend, so
// that connections verified with one CA are never used with another. Connections made with an old client certificate
// receive no more requests once there is a new one.
//
// # Sending requests
//
// Requests use HTTP/2 connections managed by this package. Their typed errors report how far a request got
// (engine.ClientConn). The implementation is internal/httpengine/portico/http2/client, on which requests share system calls, or
// golang.org/x/net/http2, as selected by Options.Engine. Backends without HTTP/2 are reached by net/http's HTTP/1.1
// client. Unless Options.Engine is engine.Library, every HTTP/1.1 response is validated (http1_conn.go): an ambiguous
// response is refused, and data received before a request is not accepted as its response. For the limitations of
// engine.Library see internal/httpengine/README.md, "Towards backends". A request body of known length up to 32 KiB is
// buffered first (replay.go), so that it is sent together with the headers and can be resent. A longer body is kept
// while it is sent, within the replay limits (replay.go). The headers of a short response are held until it is
// complete; until then the request can be repeated.
//
// A timer of the Set checks connections every 250 ms (conncheck.go). Pings, late headers and idle connections are
// handled by counting checks. Of the idle connections to an endpoint one is pinged, preferably the probes'
// connection. If it does not answer, the others are closed too. An endpoint without client requests is pinged less
// often.
//
// # Guarantees
//
//   - A request reaches one endpoint. It reaches further endpoints only if the earlier ones provably did not process
//     it: the connection was not established, the stream was refused, or a GOAWAY excluded the stream. GET and HEAD
//     without a body are also repeated, within a budget, if the connection broke or the stream was reset before the
//     response headers or within a short response. They are not repeated after PROTOCOL_ERROR, which means that the
//     request is malformed.
//   - An error is an *Error that reports how far the request got. Its text contains endpoints and is for logs. The
//     proxy creates the errors for clients.
//   - A silently dead connection is detected within two seconds, by pings on HTTP/2 and by TCP_USER_TIMEOUT on Linux.
//   - A backend that accepts requests but never answers is reported after one second (conncheck.go).
//   - Redirects are not followed, proxies from the environment are not used, and bodies are not decompressed.
//   - Resources are limited: connections per endpoint, response headers, bytes kept for repeating requests, waiting
//     time.
package transport
