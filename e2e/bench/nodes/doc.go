// Package nodes measures the cost of an API server for a cluster with many simulated Nodes: the same
// kube-controller-manager, kube-scheduler and kwok use a front door and then kube-apiserver. Latencies are compared
// with the Kubernetes objectives for API calls.
package nodes
