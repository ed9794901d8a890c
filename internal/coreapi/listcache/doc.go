// Package listcache answers lists from encodings of their objects that earlier lists have left.
//
// The library encodes every object of a list anew for every request, and copies all of a list of custom resources before it
// does. But the objects of a watch cache never change: a write replaces them. So the encoding of an object is kept for as
// long as lists ask for it, and a list is a concatenation of encodings.
//
// Nothing of the library is replaced for this. Cache.Handler lets it serve the list; Take, which is called where the list comes out
// of the storage, takes the objects out; so the library makes an answer of an empty list, with the kind, the metadata and the columns that the
// client asked for. The handler puts the objects in. What it does not know how to put in, the library serves again.
//
// An encoding is used for the very object that it was made of and for no other: its identity is the address of its managed
// fields in memory, which the cache keeps from being used for anything else, and its resourceVersion is compared too. Objects without managed
// fields are encoded each time.
package listcache
