// Package sharedwatch lets one watch of an extension server feed any number of clients.
//
// A stream watches one collection. It keeps its recent events unchanged in a ring and, once a client requests initial
// events, the current objects. A client begins after its resource version, or with the objects. From then on it reads the
// ring at its pace. A client that falls behind the ring gets 410 and lists again.
//
// Resource versions determine which events a client has already received: equality, and the order of decimal versions,
// which servers may guarantee (KEP-5504). A watch that begins at a version which the stream cannot place is not shared: its
// server decides how to answer.
//
//	history.go  the ring, the objects, and the position of a resource version in them
//	list.go     a list of the extension server
//	budget.go   the memory, the lists and the streams of all users
//	stream.go   the watch of the extension server
//	watches.go  all streams, and how a client is served
package sharedwatch
