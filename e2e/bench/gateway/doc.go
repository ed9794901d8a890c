// Package gateway measures the cost of a gateway between kube-apiserver and its extension servers: its CPU time
// compared with a bare httputil.ReverseProxy in the same place, the added latency, and the effect on the CPU time of
// kube-apiserver.
package gateway
