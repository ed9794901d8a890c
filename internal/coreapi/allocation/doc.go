// Package allocation allocates unique cluster IPs and node ports for Services.
//
// Addresses and ports are claimed in etcd before the Service is written: an address by an IPAddress object of its name, a
// port by a key of our own. A claim is a create, which succeeds only once for each name, whichever replica does it. So a
// stored Service holds its claims, and:
//
//   - a failed write releases its claims, unless the Service is stored after all, or it is unknown whether it is: an unused
//     claim costs an address for a while, a missing one could give an address to two Services;
//   - claims that an update or a deletion no longer needs are released only after the write has been stored;
//   - claims that a crash leaves are found by Repair, which waits longer than a request can last before it releases one.
//
// The allocated fields and the error messages are those of kube-apiserver.
package allocation
