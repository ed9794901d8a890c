// Package cluster adds the other parts of a cluster to an API server: it starts an unmodified kube-controller-manager and
// kube-scheduler, and kwok, which simulates Nodes and their Pods.
package cluster
