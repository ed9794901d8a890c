// Package proxy forwards one request to one backend: headers, identity, upgrades, responses, and errors that tell the
// truth.
//
// # What is trusted
//
// The request's context: the user that the chain authenticated and authorised, the RequestInfo it was authorised by,
// the audit id. No header that the client sent is trusted. The path and query were found canonical before authorization
// (request.CheckTarget), and go to the backend as the very same bytes, so that what was authorised is what is done.
// The one exception is a watch whose initial events are made here, where an annotation says so (initialevents.go): parameters
// are left out of its query and added to it, and besides the watch a list of the same collection is sent, which the caller was
// not authorised for here. It shows what such a watch shows anyway, and the backend authorises it for the client.
//
// # What is checked twice
//
//   - Credentials and identity headers are removed by authentication and impersonation, and again here, by a name
//     that is folded as a careless backend would: X_Remote.Group is X-Remote-Group to WSGI, CGI and some proxies
//     (CVE-2025-64484 and its family). A name that is no token passes in neither direction.
//   - Hop-by-hop headers are dropped and Connection is rebuilt before the identity is written. The identity comes last
//     on plain and on upgraded requests alike, so that no header of the client can nominate it for removal at the
//     next hop (CVE-2021-31999, CVE-2024-45410).
//   - A 101 is compared with what was asked for before a byte is copied in either direction (CVE-2018-1002105).
//
// # What is promised
//
//   - To the backend: each identity header is ours and truthful, sent once per value, and free of control bytes.
//   - To the client: a response is whole, or is visibly broken; never a short one that looks complete. A failure of
//     ours is a metav1.Status that names the APIService and never an address. Retry-After is sent only where nothing was
//     sent to the backend. A redirect is never followed and never passed on (CVE-2022-3172).
//   - To the server: every wait has a deadline. The request's deadline ends with the response headers, since a
//     response that is streaming or upgraded is not late; from there on a dead backend is found by its connection,
//     a response of known length must make progress, and an upgraded connection ends when it is idle for long or when
//     the server drains.
//
// One request, in order: loop check, user, concurrency slot, headers, send, check the status, copy headers, copy the
// body. Upgrades part ways after the headers (upgrade.go).
package proxy
