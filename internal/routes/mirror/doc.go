// Package mirror compares the responses of two backends to the same reads.
//
// A read that a rule of an APIRoute mirrors is served like any other. Its response to the client is recorded. When the response
// is complete, a copy of the request waits in a queue, is sent to the other backend, and the two responses are compared.
// Clients never wait for this: without space, the copy is dropped and counted.
//
//	recorder.go  records the compared part of a response
//	mirror.go    the queue and its workers
//	compare.go   compares two responses
package mirror
