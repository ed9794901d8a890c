// Package mirror answers one question: does the other backend answer the same?
//
// A read that a rule of an APIRoute mirrors is answered as any other. What the client gets is recorded on its way. When it is complete, a copy
// of the request waits in a queue, is sent to the other backend, and the two responses are compared. Clients wait for none of that: where
// there is no room, the copy is dropped and counted.
//
//	recorder.go  what the client gets, as far as it is compared
//	mirror.go    the queue, and who sends what waits in it
//	compare.go   what two responses differ in
package mirror
