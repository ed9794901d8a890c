// Package openapi gives one merged answer to "what does it look like?".
//
// Version 3 is an index of documents, one for each group-version, named by the hash of their content. The index and every
// document are served from memory: those of the local groups were made when the program was built, those of backends
// are fetched in the background (fetch.go) and the last good one is kept, so that no request waits for a backend, and a
// backend that dies does not take the description of its kinds with it.
//
// Version 2 is one document of everything, which only old clients read. It is made when somebody asks for it (swaggers.go,
// union.go), of what backends say then or last said (inquiry.go, member.go), and dropped when nobody has for a while.
//
// A backend describes itself, and nobody else: check.go says what a document must be like to be shown to clients.
package openapi
