// Package proxy forwards a request to a backend. It handles headers, identity, upgrades, responses, and the errors that
// clients receive.
//
// # Trusted input
//
// The proxy trusts the request's context: the user that the chain authenticated and authorized, the RequestInfo used for
// authorization, and the audit ID. It does not trust any header sent by the client. The path and the query were verified as
// canonical before authorization (request.CheckTarget) and are sent to the backend byte for byte, so that the backend
// executes the authorized request. The one exception is a watch whose initial events are made by the proxy because an
// annotation requires it (initialevents.go). The proxy removes parameters from its query and adds one, and sends an
// additional list of the same collection, for which Portico did not authorize the client. The list returns the same objects
// as such a watch, and the backend authorizes it for the client.
//
// # Double checks
//
//   - Authentication removes credentials and identity headers (authn.Headers.Strip), and impersonation its own headers. The
//     proxy removes all of them again (withheldFromBackend), by a name that is folded like a careless backend folds it:
//     X_Remote.Group is X-Remote-Group to WSGI, CGI and some proxies (CVE-2025-64484 and similar). A name that is not a token is dropped in both directions.
//   - The proxy drops hop-by-hop headers and rebuilds Connection before it writes the identity. The identity is written
//     last on plain and upgraded requests alike, so that no client header can nominate it for removal at the next hop
//     (CVE-2021-31999, CVE-2024-45410).
//   - The proxy compares a 101 response with the request before it copies a byte in either direction (CVE-2018-1002105).
//
// # Guarantees
//
//   - To the backend: each identity header is set by the proxy, is sent once per value, and contains no control bytes.
//   - To the client: a response is either complete or visibly broken, never a truncated one that looks complete. A proxy
//     failure is a metav1.Status that names the APIService and never an address. Retry-After is sent only if nothing was
//     sent to the backend. A redirect is never followed and never forwarded (CVE-2022-3172).
//   - To the server: every wait has a deadline. The request's deadline ends with the response headers, because a streaming
//     or upgraded response is not late. After that, the connection detects a dead backend, a response of known length must
//     make progress, and an upgraded connection ends when it is idle for long or when the server drains.
//
// The steps of a request are: loop check, user, concurrency slot, headers, send, status check, copy headers, copy body.
// Upgrades take a separate path after the headers (upgrade.go).
package proxy
