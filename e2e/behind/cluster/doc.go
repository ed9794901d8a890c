// Package cluster runs a control plane like that in a cluster: etcd, an unmodified kube-apiserver with RBAC and a front proxy
// certificate, and kube-controller-manager. It has no nodes.
package cluster
