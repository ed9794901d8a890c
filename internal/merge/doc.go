// Package merge serves lists and watches of a collection whose objects are stored at several places: some namespaces at an extension server, the
// others as custom resources.
//
// A resource version of such a collection is a position: the resource version of each source, in one decimal number, so that positions
// compare as the resource versions of KEP-5504 do (or in one opaque text, if a source has other resource versions). It also says of which sources
// it is. When another source owns some of the objects, positions from before get 410, and clients list again: an event is neither lost nor
// sent twice when objects move.
//
// Objects keep the resource versions of their sources, since those are what an update is checked against. A client of a watch learns its
// position from bookmarks, one after each batch of events. One that goes on from the resource version of an object gets 410.
//
// A continue token says which sources have been listed, where the list is in the current one, and the position of the whole list, at which each
// of the others is listed later.
//
//	position.go  resource versions and continue tokens
//	list.go      lists, in one response or in parts
//	watch.go     watches
//	table.go     what Tables and objects have in common
package merge
