package metricsapi

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// errNoCgroups is returned on machines without cgroup accounting of CPU and memory.
var errNoCgroups = errors.New("no cgroup hierarchy that counts CPU and memory")

// tree is one mounted hierarchy.
type tree struct {
	root    string
	unified bool // version 2
}

// cgroups are the hierarchies that account CPU and memory: one tree in version 2, two in version 1, and in a hybrid setup the
// ones that have the controllers. A group has the same path in both trees.
type cgroups struct{ cpu, memory tree }

// findCgroups detects the hierarchies below path. It runs for every reading, because a kubelet may start later.
func findCgroups(path string) (cgroups, error) {
	if controllers, ok := controllersOf(path); ok {
		if !slices.Contains(controllers, "memory") {
			return cgroups{}, errNoCgroups
		}
		return cgroups{tree{path, true}, tree{path, true}}, nil
	}
	unified := filepath.Join(path, "unified")
	controllers, hybrid := controllersOf(unified)
	cpu, memory := firstWith("cpuacct.usage", path, "cpuacct", "cpu,cpuacct", "cpuacct,cpu"), firstWith("memory.usage_in_bytes", path, "memory")
	if cpu.root == "" && hybrid && slices.Contains(controllers, "cpu") {
		cpu = tree{unified, true}
	}
	if memory.root == "" && hybrid && slices.Contains(controllers, "memory") {
		memory = tree{unified, true}
	}
	if cpu.root == "" || memory.root == "" {
		return cgroups{}, errNoCgroups
	}
	return cgroups{cpu, memory}, nil
}

func controllersOf(root string) ([]string, bool) {
	text, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	return strings.Fields(string(text)), err == nil
}

func firstWith(file, path string, names ...string) tree {
	for _, name := range names {
		root := filepath.Join(path, name)
		if _, err := os.Stat(filepath.Join(root, file)); err == nil {
			return tree{root: root}
		}
	}
	return tree{}
}

// read returns the counters of the group at path.
func (c cgroups) read(path string) (Reading, error) {
	seconds, err := c.cpu.seconds(path)
	if err != nil {
		return Reading{}, err
	}
	at := time.Now()
	set, err := c.memory.workingSet(path)
	return Reading{At: at, Seconds: seconds, WorkingSet: set}, err
}

func (t tree) seconds(path string) (float64, error) {
	if t.unified {
		usec, err := t.field(path, "cpu.stat", "usage_usec")
		return float64(usec) / 1e6, err
	}
	nsec, err := t.number(path, "cpuacct.usage")
	return float64(nsec) / 1e9, err
}

// workingSet returns the working set as the kubelet defines it: memory usage without inactive file pages.
func (t tree) workingSet(path string) (uint64, error) {
	current, inactive := "memory.current", "inactive_file"
	if !t.unified {
		current, inactive = "memory.usage_in_bytes", "total_inactive_file"
	}
	total, err := t.number(path, current)
	if err != nil {
		return 0, err
	}
	cold, err := t.field(path, "memory.stat", inactive)
	if err != nil {
		return 0, err
	}
	return total - min(cold, total), nil // the two files are not read atomically
}

func (t tree) number(path, file string) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(t.root, path, file))
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
}

func (t tree) field(path, file, name string) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(t.root, path, file))
	if err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s: no %s", filepath.Join(path, file), name)
}

// maxDepth limits the depth of the search for groups. The pods of nested Kubernetes nodes are five levels deep.
const maxDepth = 7

// walk visits the groups below path in order, parents first. It descends into a group if visit returns true.
func (t tree) walk(path string, depth int, visit func(path string) bool) {
	if depth > maxDepth {
		return
	}
	entries, err := os.ReadDir(filepath.Join(t.root, path))
	if err != nil {
		return // deleted since its parent was read
	}
	for _, e := range entries {
		if sub := filepath.Join(path, e.Name()); e.IsDir() && visit(sub) {
			t.walk(sub, depth+1, visit)
		}
	}
}

const (
	// kernelThread is the flag PF_KTHREAD in /proc/<pid>/stat.
	kernelThread = 0x00200000
	kernelGroup  = "kernel"
	// maxProcesses limits a scan. Further processes are not counted.
	maxProcesses = 100_000
)

// processID identifies a process. The kernel reuses the PIDs of processes that have exited.
type processID struct {
	pid   int
	start uint64
}

// processes accumulates the CPU time of groups of processes. A group's counter is the sum of the increments of its processes,
// so that it does not decrease when a process exits.
type processes struct {
	fs    procfs.FS
	last  map[processID]float64 // CPU seconds at the last scan
	total map[string]float64    // CPU seconds by group
}

// read scans all processes once. It skips processes that exit during the scan. It needs no privileges, because all users can
// read the relevant files.
func (p *processes) read(namespace string) (podReadings, error) {
	all, err := p.fs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	at := time.Now()
	out := podReadings{}
	last, total := make(map[processID]float64, len(all)), map[string]float64{}
	for _, proc := range all[:min(len(all), maxProcesses)] {
		stat, err := proc.Stat()
		if err != nil {
			continue
		}
		name, labels := groupOf(proc, stat)
		who, spent := processID{stat.PID, stat.Starttime}, stat.CPUTime()
		last[who] = spent
		if _, ok := total[name]; !ok {
			total[name] = p.total[name]
		}
		if p.last != nil { // the first scan sets the starting point
			total[name] += max(spent-p.last[who], 0)
		}
		out.add(namespace, name, labels, Reading{At: at, WorkingSet: uint64(max(stat.ResidentMemory(), 0))})
	}
	p.last, p.total = last, total
	out.count(namespace, total)
	return out, nil
}

// count adds the CPU time of groups to their readings.
func (f podReadings) count(namespace string, total map[string]float64) {
	for name, seconds := range total {
		key, container := PodKey{Namespace: namespace, Name: dnsName(name)}, dnsLabel(name)
		r := f[key].containers[container]
		r.Seconds += seconds
		f[key].containers[container] = r
	}
}

// groupOf returns the unit of a process, or its command if it has no unit.
func groupOf(proc procfs.Proc, stat procfs.ProcStat) (string, map[string]string) {
	if stat.Flags&kernelThread != 0 {
		return kernelGroup, map[string]string{commandLabel: kernelGroup}
	}
	if groups, err := proc.Cgroups(); err == nil {
		for _, g := range groups {
			if unit, ok := unitAbove(g.Path); ok {
				return unit, map[string]string{unitLabel: labelValue(unit), sliceLabel: sliceOf(g.Path)}
			}
		}
	}
	name := command(stat)
	return name, map[string]string{commandLabel: labelValue(name)}
}

// unitAbove returns the outermost unit on a path, because processes within a service belong to it.
func unitAbove(path string) (string, bool) {
	name, found := "", false
	for ; path != "/" && path != "."; path = filepath.Dir(path) {
		if unit, ok := unitName(path); ok {
			name, found = unit, true
		}
	}
	return name, found
}

// command returns the name of a process. The kernel truncates it to 15 bytes.
func command(stat procfs.ProcStat) string { return filepath.Base(strings.TrimSpace(stat.Comm)) }
