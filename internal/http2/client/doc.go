// Package client is HTTP/2 as we speak it to backends: one Conn is one connection, made on a TLS session that somebody else
// has verified.
//
// One goroutine reads a connection. The goroutine of a request writes its own HEADERS and a body that is there, and then
// waits; a body that is long, or comes slowly, has a goroutine until it is sent or nobody wants it any more. Nothing else
// is started, and there are no timers: whoever owns a Conn looks at it every so often (Look), and looks are counted, not
// time. A process that did not get to run for a second has looked once.
//
// # What is promised
//
//   - A request fails with an *Error whose Fate says how far it got. Unsent, Unprocessed and Refused are proofs that nobody
//     worked on it (RFC 9113, 8.7).
//   - The end of a request's context ends it at once, except while the kernel takes no bytes of the connection: whoever
//     writes then waits until pings find that out.
//   - The head of a response of up to 16 KiB waits for the rest, until the next Look at the most: before, nobody has seen
//     anything of it, and its failure is the request's.
//   - What a response takes in memory is bounded by its stream's window, the number of streams by the server's SETTINGS.
//     The connection's window is given back as bytes arrive, so that a response that nobody reads keeps no other waiting.
//   - What a server may send beside answers is bounded, all at once and over time (read.go), and so is how long it may take for
//     what the protocol asks of it (look.go).
//   - A server that breaks the protocol loses the stream or the connection, as RFC 9113 says.
package client
