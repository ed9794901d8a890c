package resident

import (
	"math"

	"golang.org/x/sys/unix"

	"portico.dev/internal/run/cgroup"
)

// memory is how many bytes of memory this process may have: the machine's, or the least that its control group, or one
// around that, is allowed.
func memory() uint64 {
	var info unix.Sysinfo_t
	machine := uint64(math.MaxInt64)
	if err := unix.Sysinfo(&info); err == nil {
		machine = uint64(info.Totalram) * uint64(info.Unit)
	}
	if group := cgroup.Find(); group != nil {
		return min(machine, group.Limit)
	}
	return machine
}
