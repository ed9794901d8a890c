// Package sharedwatch lets one watch of an extension server feed any number of clients.
//
// A stream watches one collection. It keeps its recent events as they came, in a ring, and, once a client asks for initial events, the objects
// that there are. A client begins after the resource version that it has, or with the objects; from then on it reads the ring at its own
// pace. A client that the ring has left behind gets 410, and lists again.
//
// Which events a client has seen already is decided by resource versions: equal ones, and the order of decimal ones, as servers may promise it
// (KEP-5504). A watch that begins at a version that the stream cannot place is not shared: its server decides what becomes of it.
//
//	history.go  the ring, the objects, and where a resource version is in them
//	list.go     a list of the extension server
//	budget.go   the memory, the lists and the streams of all users
//	stream.go   the watch of the extension server
//	watches.go  all streams, and how a client is served
package sharedwatch
