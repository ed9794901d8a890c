package memory

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Cgroup is the control group with the least limit of memory: the one of this process, or one around that.
type Cgroup struct {
	// Limit is in bytes. At the limit the kernel kills a process of the group.
	Limit uint64

	usage, stat string   // files
	pages       []string // lines of stat: pages of files, which the kernel can drop
}

// cgroupVersion is one of the two that Linux has.
type cgroupVersion struct {
	root, limit, usage string
	pages              []string
}

// cgroupVersions are where service managers and container runtimes mount them.
func cgroupVersions(root string) (v1, v2 cgroupVersion) {
	v2 = cgroupVersion{root, "memory.max", "memory.current", []string{"inactive_file", "active_file"}}
	v1 = cgroupVersion{filepath.Join(root, "memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", []string{"total_inactive_file", "total_active_file"}}
	return v1, v2
}

// FindCgroup returns the group with the least limit, or nil when no group has one.
func FindCgroup() *Cgroup {
	mine, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil // no Linux
	}
	return FindCgroupIn("/sys/fs/cgroup", string(mine))
}

// FindCgroupIn is FindCgroup in a tree of files. It looks at the groups that mine, the content of /proc/self/cgroup, names, and at
// those around them. A group that is hidden in a container is skipped: the ones around it have the limit that applies there.
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

// number reads a file with one number. What version 2 calls "max" and version 1 writes as nearly 2^63 is none.
func number(name string) (uint64, bool) {
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil && n < math.MaxInt64>>12<<12
}

// Used is how many bytes the group uses without the pages of files, which the kernel drops when it needs room. It counts what the
// kernel keeps for the group, such as the buffers of sockets.
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
