package metricsapi

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

const (
	// kernelThread is PF_KTHREAD of the flags in /proc/<pid>/stat.
	kernelThread = 0x00200000
	kernelGroup  = "kernel"
	// maxProcesses bounds a scan. What is beyond is not counted.
	maxProcesses = 100_000
)

// life is one process: the kernel gives a number to another process once the first has ended.
type life struct {
	pid   int
	start uint64
}

// processes counts the CPU time of groups of processes. A group's counter is the sum of what its processes were seen to
// spend, so that it never runs backwards when one of them ends.
type processes struct {
	fs    procfs.FS
	last  map[life]float64   // CPU seconds at the last scan
	total map[string]float64 // CPU seconds by group
}

// read scans once. Processes that vanish meanwhile are fine, and so are those of others: what is read is open to all.
func (p *processes) read(namespace string) (findings, error) {
	all, err := p.fs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	at := time.Now()
	out := findings{}
	last, total := make(map[life]float64, len(all)), map[string]float64{}
	for _, proc := range all[:min(len(all), maxProcesses)] {
		stat, err := proc.Stat()
		if err != nil {
			continue
		}
		name, labels := groupOf(proc, stat)
		who, spent := life{stat.PID, stat.Starttime}, stat.CPUTime()
		last[who] = spent
		if _, ok := total[name]; !ok {
			total[name] = p.total[name]
		}
		if p.last != nil { // the first scan only says where to count from
			total[name] += max(spent-p.last[who], 0)
		}
		out.add(namespace, name, labels, Reading{At: at, WorkingSet: uint64(max(stat.ResidentMemory(), 0))})
	}
	p.last, p.total = last, total
	out.count(namespace, total)
	return out, nil
}

// count puts the CPU time of groups beside their memory.
func (f findings) count(namespace string, total map[string]float64) {
	for name, seconds := range total {
		key, container := PodKey{Namespace: namespace, Name: dnsName(name)}, dnsLabel(name)
		r := f[key].containers[container]
		r.Seconds += seconds
		f[key].containers[container] = r
	}
}

// groupOf is the unit that a process belongs to, or its command where there are no units.
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

// unitAbove is the outermost unit on a path: what runs inside of a service belongs to it.
func unitAbove(path string) (string, bool) {
	name, found := "", false
	for ; path != "/" && path != "."; path = filepath.Dir(path) {
		if unit, ok := unitName(path); ok {
			name, found = unit, true
		}
	}
	return name, found
}

// command is the name that a process goes by. Kernels cut it to 15 bytes.
func command(stat procfs.ProcStat) string { return filepath.Base(strings.TrimSpace(stat.Comm)) }
