// Package local measures the cost that the front door adds to the storage layer of k8s.io/apiserver, on which its
// local groups are built.
//
// The same operations on ConfigMaps run four times: directly on the generic registry store over Portico's etcd,
// through the REST handler of the local groups, through the complete filter chain in front of it (these three by
// function calls in one process), and through a front door over TLS.
package local
