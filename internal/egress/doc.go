// Package egress makes connections into other networks, through the tunnels of an EgressSelectorConfiguration: a konnectivity server
// (sigs.k8s.io/apiserver-network-proxy) or another server of HTTP CONNECT. It is how nodes, pods and extension servers are reached that this
// machine has no route to.
//
// # What is taken from the library
//
// The file is read and validated by k8s.io/apiserver/pkg/server/egressselector, so that what kube-apiserver accepts is accepted, and the
// names cluster, controlplane and etcd mean the same. Connections are not made by it. Its dials over HTTP CONNECT have no
// deadline (kubernetes/kubernetes#140512), and konnectivity-client's connections have no deadlines either, no addresses, and a Close that waits
// for a write that a hung server never takes; each leaves goroutines and connections behind. Of konnectivity-client the protocol is used.
//
// # What is trusted
//
// A tunnel is as trusted as the network: it may connect to somewhere else than it was asked to, read, change and drop. So whoever dials
// verifies TLS at the other end of it, as without a tunnel, with the same names and authorities. What it answers is bounded: the headers of a
// response to CONNECT, the text of an error, the size of a message. Bytes that it sends before they can have been asked for end the connection. Host names
// become part of a request to it, and are checked before (transport).
//
// # What is promised to callers
//
//   - A dial ends with its context, and after maxDial at the latest. It leaves nothing behind: connections that fail are closed, and the
//     goroutines of those over gRPC end with them.
//   - No more than maxPending dials of a tunnel are under way.
//   - Errors tell whether the tunnel is to blame (*transport.TunnelError) or the address. A dial that nothing comes of is the address's fault if
//     something else came through the tunnel meanwhile.
//   - Run waits for every goroutine.
package egress
