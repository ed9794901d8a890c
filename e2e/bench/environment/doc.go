// Package environment starts the servers of a benchmark side by side: a backend, bare reverse proxies and front doors, each
// in a process of its own. It has the clients that load one of them, and measures what each process used.
//
// The backend and the bare proxies are the benchmark's own program, started again with a role.
package environment
