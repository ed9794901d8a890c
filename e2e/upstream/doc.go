// Package upstream runs Kubernetes' own end-to-end specs, unmodified, that need neither a node nor a controller for
// workloads, against a front door. It is a module of its own, because only it imports k8s.io/kubernetes.
package upstream
