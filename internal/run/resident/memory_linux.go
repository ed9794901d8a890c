package resident

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// memory is how many bytes of memory this process may have: the machine's, or the least that its control group, or one
// around that, is allowed. It knows version 2 of control groups.
func memory() uint64 {
	var info unix.Sysinfo_t
	machine := uint64(math.MaxInt64)
	if err := unix.Sysinfo(&info); err == nil {
		machine = uint64(info.Totalram) * uint64(info.Unit)
	}
	mine, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return machine
	}
	return min(machine, allowed("/sys/fs/cgroup", string(mine)))
}

// allowed is the least limit of the control group that mine, /proc/self/cgroup, names, and of those around it.
func allowed(root, mine string) uint64 {
	least := uint64(math.MaxInt64)
	for line := range strings.Lines(mine) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/")
		if !ok {
			continue
		}
		for at := filepath.Join(root, group); len(at) >= len(root); at = filepath.Dir(at) {
			text, err := os.ReadFile(filepath.Join(at, "memory.max"))
			if err != nil {
				continue // the outermost has none
			}
			if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil { // or it is "max"
				least = min(least, n)
			}
		}
	}
	return least
}
