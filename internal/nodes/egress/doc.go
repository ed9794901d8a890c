// Package egress connects to other networks through the tunnels of an EgressSelectorConfiguration: a konnectivity
// server (sigs.k8s.io/apiserver-network-proxy) or another HTTP CONNECT server. It is used for nodes, pods and
// extension servers to which this machine has no route.
//
// # Use of Kubernetes libraries
//
// k8s.io/apiserver/pkg/server/egressselector reads and validates the file, so that the same files are valid as for
// kube-apiserver, and the names cluster, controlplane and etcd have the same meaning. It does not make the
// connections. Its dials over HTTP CONNECT have no deadline (kubernetes/kubernetes#140512). The connections of
// konnectivity-client have no deadlines and no addresses, and their Close waits for a write that a hung server never
// reads. Both leak goroutines and connections. This package uses only the protocol definition of konnectivity-client.
//
// # Trust
//
// A tunnel is as trusted as the network: it may connect to a different address, and read, modify and drop data.
// Therefore the caller verifies TLS at the far end, with the same names and authorities as without a tunnel. All data
// from the tunnel server is bounded: the headers of a response to CONNECT, the text of an error, the size of a
// message. A connection is closed if bytes arrive before a request was sent. Host names become part of a request to
// the server and are validated first (transport).
//
// # Guarantees to callers
//
//   - A dial ends with its context, and after maxDial at the latest. It leaks nothing: failed connections are closed,
//     and the goroutines of connections over gRPC end with them.
//   - At most maxPending dials of a tunnel are in progress.
//   - Errors distinguish the tunnel (*transport.TunnelError) from the address. A dial that times out is attributed to
//     the address if other data came through the tunnel in the meantime.
//   - Run waits for every goroutine.
package egress
