// Package serve is the HTTP/2 side that clients meet: what net/http's server is, for connections that are through TLS.
//
// One goroutine reads each connection and never waits for anything else: not for a handler, and not for the other side to
// take what is written. Handlers run on workers, goroutines that are used again, so that a request costs neither a start
// nor the growth of a stack. A handler writes its own frames (wire.Out).
//
// What a handler sees is what net/http shows it. Where this server differs, it refuses more: a body that is not as long as
// its Content-Length says is a broken stream, and so is a second, different length.
//
// # What a client can make us keep
//
// Streams count until their handlers have ended, reset or not (CVE-2023-44487), and resets that a client provokes count as
// its own (CVE-2025-8671). Header blocks are bounded compressed and unpacked, and in time. What asks for an answer, or
// means nothing, may come so often and no more (bounds.go); a header block that is too large counts as a thousand of these.
// Windows bound bodies. An answer that the client does not take ends (watch.go), unless its handler says that it is long-running.
package server
