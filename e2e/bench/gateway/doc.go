// Package gateway measures what a gateway costs between a kube-apiserver and its extension servers: its own CPU beside that of a bare
// httputil.ReverseProxy in the same place, the time that it adds, and what becomes of kube-apiserver's CPU.
package gateway
