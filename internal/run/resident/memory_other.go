//go:build !linux

package resident

import "math"

// memory is how many bytes of memory this process may have, where that is known.
func memory() uint64 { return math.MaxInt64 }
