// Package merge serves lists and watches of a collection with objects in several stores: some namespaces in an extension
// server, the others as custom resources.
//
// A resource version of such a collection is a position: the resource versions of all sources in one decimal number, so that
// positions are comparable like the resource versions of KEP-5504, or in one opaque string, if a source has other resource
// versions. A position also identifies its sources. If another source becomes the owner of some objects, earlier positions get
// 410, and clients list again: no event is lost or sent twice when objects move.
//
// Objects keep the resource versions of their sources, because updates are checked against them. A client of a watch gets its
// position from bookmarks, one after each batch of events. A watch that starts at the resource version of an object gets 410.
//
// A continue token contains the current source, the position within its list, and the resource version at which each of the
// remaining sources is listed later.
//
//	position.go  resource versions and continue tokens
//	list.go      lists, in one response or in parts
//	watch.go     watches
//	table.go     code shared by Tables and objects
package merge
