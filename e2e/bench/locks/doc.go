// Package locks counts how often requests write memory that other requests write too: locks and atomic variables. On
// many processors, each of these writes moves a cache line from one processor to another, even if nobody waits.
//
// It builds the front door with a modified copy of three files of Go's standard library, in which each lock and each
// method of sync/atomic that writes records its call stack and the address that it writes. Not counted are the functions
// of sync/atomic, which Prometheus' counters and the runtime use, and locks of the runtime.
package locks
