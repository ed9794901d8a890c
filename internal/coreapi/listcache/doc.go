// Package listcache serves lists from cached encodings of their objects.
//
// k8s.io/apiserver encodes every object of a list again for every request, and first copies an entire list of custom resources.
// But the objects of a watch cache never change: a write replaces them. Therefore this package keeps the encoding of an object
// as long as lists use it, and a list is a concatenation of encodings.
//
// This replaces no part of k8s.io/apiserver. Cache.Handler forwards the list request to it. Take, which is called when the list
// is returned by the storage, removes the objects from the list. So k8s.io/apiserver creates a response for an empty list, with
// the kind, the metadata and the columns that the client requested, and the handler inserts the objects. If the handler does
// not support the response, k8s.io/apiserver serves the request again.
//
// An encoding is used only for the object from which it was made. The identity of an object is the memory address of its
// managed fields, which the cache keeps alive so that the address is not reused, and its resourceVersion. Objects without
// managed fields are encoded each time.
package listcache
