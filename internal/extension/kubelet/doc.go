// Package kubelet reads what nodes and pods use from every node's kubelet, at /metrics/resource, as metrics-server does.
//
// The token that is sent goes to whatever address a Node's status names, and a node may write its own status. What
// keeps the token from a stranger is that the address must prove itself with a certificate of the kubelets' CA: that is
// what Insecure gives up.
package kubelet
