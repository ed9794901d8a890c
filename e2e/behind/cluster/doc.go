// Package cluster runs a control plane as clusters have it: an etcd, an unmodified kube-apiserver with RBAC and a front proxy,
// and a kube-controller-manager. There is no node.
package cluster
