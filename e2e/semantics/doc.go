// Package semantics asks the running front door, by HTTP and by client-go, for everything that a client may expect of a
// Kubernetes API: the same cycle for every kind that it serves itself, and then what needs objects of its own.
package semantics
