package memory

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Cgroup is the control group with the lowest memory limit among the group of this process and its ancestors.
type Cgroup struct {
	// Limit is in bytes. At the limit the kernel kills a process of the group.
	Limit uint64

	usage, stat string   // files
	pages       []string // keys in stat: file pages, which the kernel can drop
}

// cgroupVersion describes one of the two versions of control groups in Linux.
type cgroupVersion struct {
	root, limit, usage string
	pages              []string
}

// cgroupVersions returns the versions at the usual mount points of service managers and container runtimes.
func cgroupVersions(root string) (v1, v2 cgroupVersion) {
	v2 = cgroupVersion{root, "memory.max", "memory.current", []string{"inactive_file", "active_file"}}
	v1 = cgroupVersion{filepath.Join(root, "memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", []string{"total_inactive_file", "total_active_file"}}
	return v1, v2
}

// FindCgroup returns the group with the lowest limit, or nil if no group has a limit.
func FindCgroup() *Cgroup {
	mine, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil // not Linux
	}
	return FindCgroupIn("/sys/fs/cgroup", string(mine))
}

// FindCgroupIn is FindCgroup in a directory tree. It reads the groups named in mine, the content of /proc/self/cgroup, and
// their ancestors. It skips groups that are hidden in a container, because the visible ancestors have the limit that applies
// there.
func FindCgroupIn(root, mine string) (least *Cgroup) {
	v1, v2 := cgroupVersions(root)
	for line := range strings.Lines(mine) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, path
		if len(fields) != 3 {
			continue
		}
		v := v1
		switch {
		case fields[0] == "0" && fields[1] == "":
			v = v2
		case !slices.Contains(strings.Split(fields[1], ","), "memory"):
			continue
		}
		for at := filepath.Join(v.root, fields[2]); len(at) >= len(v.root); at = filepath.Dir(at) {
			n, ok := number(filepath.Join(at, v.limit))
			if ok && (least == nil || n < least.Limit) {
				least = &Cgroup{Limit: n, usage: filepath.Join(at, v.usage), stat: filepath.Join(at, "memory.stat"), pages: v.pages}
			}
		}
	}
	return least
}

// number reads a file with one number. The values for "no limit", "max" in version 2 and nearly 2^63 in version 1, count as not
// set.
func number(name string) (uint64, bool) {
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil && n < math.MaxInt64>>12<<12
}

// Used returns the number of bytes that the group uses, except file pages, which the kernel drops under memory pressure. It
// includes kernel memory of the group, such as socket buffers.
func (c *Cgroup) Used() (uint64, bool) {
	usage, ok := number(c.usage)
	if !ok {
		return 0, false
	}
	stat, err := os.ReadFile(c.stat)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(stat)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		for _, pages := range c.pages {
			if name != pages {
				continue
			}
			if n, err := strconv.ParseUint(value, 10, 64); err == nil {
				usage -= min(usage, n)
			}
		}
	}
	return usage, true
}
