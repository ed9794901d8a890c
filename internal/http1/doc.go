// Package http1 is the HTTP/1.1 side that clients meet: what net/http's server is, for connections that are through TLS.
//
// One goroutine has a connection: it reads the head of a request, runs the handler, writes the answer and reads the next
// head. Nothing else runs for it, and no deadline is set, unless there is a reason: a head or a body that does not come at
// once, or a handler that runs so long that it should hear of its client's end (listen.go).
//
// # One reading
//
// What could be read in two ways is refused (400, and the connection ends), because whoever stands before us, or behind,
// may read it in the other (CVE-2025-22871 and its kin): lines end with CRLF and nothing else, no line is folded, a body
// has one length or one coding. A handler sees of the rest what net/http shows it.
package http1
