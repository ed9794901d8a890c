// Package metricsapi is metrics.k8s.io: what nodes and pods use, in the two versions and the exact shape that metrics-server gives.
//
// Where the numbers come from is a Source: this machine (hostmetrics), kubelets (kubelet) or a Prometheus server
// (promsource). Sources keep their latest measurement on a Board; a request reads it and waits for nobody.
package metricsapi
