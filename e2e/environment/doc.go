// Package environment starts the servers of a benchmark: a backend, bare reverse proxies and front doors, each in a
// separate process. It contains clients that generate load, and measures the resources that each process uses.
//
// The backend and the bare proxies are the benchmark's own program, started again with a role.
package environment
