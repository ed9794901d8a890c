package http2test

import "runtime/metrics"

// MostAllocated bounds what one run of a connection may allocate in all, for an input of some bytes: it bounds what can be held at a time.
func MostAllocated(input int) uint64 { return 24<<20 + 2000*uint64(input) }

// Allocated is how many bytes were allocated since the process began.
func Allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
