// Package nodes measures what an API server costs a cluster of many simulated Nodes: the same kube-controller-manager, kube-scheduler and kwok
// in front of a front door and of a kube-apiserver, one after the other. Latencies are judged by upstream's objectives for API calls.
package nodes
