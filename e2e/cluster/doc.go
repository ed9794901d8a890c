// Package cluster makes a cluster of an API server: it starts an unmodified kube-controller-manager and kube-scheduler, and kwok, which
// simulates Nodes and what runs on them.
package cluster
