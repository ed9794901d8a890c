//go:build !linux

package memory

import "math"

// ReleaseStartPages is for Linux.
func ReleaseStartPages() error { return nil }

// available is how much memory this process may use, where that is known.
func available() uint64 { return math.MaxInt64 }
