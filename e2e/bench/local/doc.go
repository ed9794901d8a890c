// Package local measures what the front door adds to the storage library that its own groups stand on.
//
// The same operations on ConfigMaps are run four times: straight on the library's registry store over our etcd, then through
// the REST handler of the local groups, then through the whole chain of filters before it (these three by function calls in
// one process), and through a real front door over TLS.
package local
