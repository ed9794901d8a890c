// Package wire is what both sides of an HTTP/2 connection have in common: frames in (Reader), frames out (Out), header blocks
// (Decoder, Encoder), flow control (Inflow, Sender) and the bytes of a message that wait to be read (Body).
//
// A Reader, a Decoder and a Block belong to the one goroutine that reads the connection. An Out is used by all.
package frame
