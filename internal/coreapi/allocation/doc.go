// Package allocation gives Services their cluster IPs and node ports, and no two Services the same.
//
// What belongs to a Service is claimed in etcd before the Service is written: an IPAddress object named by the address, a
// key of our own named by the port. To claim is to create, and only one can create a name, whichever replica it asks. So
// a Service that was stored holds its claims, and:
//
//   - a write that fails gives back what it had claimed, unless the Service turns out to be stored after all, or nobody
//     can tell: a claim too many costs an address for a while, a claim too few would give it to two;
//   - what an update or a deletion no longer needs is given back only after etcd has taken the write;
//   - what a crash leaves between the two is found by Repair, which waits for longer than a request can last before it
//     takes a claim away.
//
// Which fields a Service gets, and what is refused with which words, is kube-apiserver's choice, because clients and
// people have come to rely on it.
package allocation
