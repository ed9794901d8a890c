//go:build !linux

package memory

import "math"

// ReleaseStartPages does nothing. It is implemented on Linux only.
func ReleaseStartPages() error { return nil }

// available returns the memory that this process may use. It is unknown on this system.
func available() uint64 { return math.MaxInt64 }
