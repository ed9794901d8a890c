// Package allocation allocates unique cluster IPs and node ports for Services.
//
// Addresses and ports are claimed in etcd before the Service is written: an address by an IPAddress object with its name, a
// port by a separate key (addressClaims in kinds/core/service_storage.go, EtcdPorts here). A claim is a create, which succeeds only once for each name, on any replica. So a stored Service
// holds its claims, and:
//
//   - a failed write releases its claims, unless the Service is stored after all, or its state is unknown: an unused claim
//     costs an address for a while, a missing one could give an address to two Services;
//   - claims that an update or a deletion no longer needs are released only after the write has been stored;
//   - Repair finds claims left by a crash. It first ends the unfinished write, so that its Service can no longer be
//     stored, and then releases the claims.
//
// The allocated fields and the error messages are the same as kube-apiserver's.
package allocation
