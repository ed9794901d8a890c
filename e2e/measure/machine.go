package measure

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Machine describes the machine and the build that were measured.
type Machine struct {
	Processor string `json:"processor"`
	Cores     int    `json:"cores"`
	MemoryGiB string `json:"memoryGiB"`
	Kernel    string `json:"kernel"`
	Go        string `json:"go"`
	// Commit of the tree that was built. It ends in -dirty if files were modified.
	Commit string    `json:"commit"`
	Began  time.Time `json:"began"`
	// Load is the one-minute load average before the first measurement.
	Load string `json:"load"`
}

// ThisMachine returns the description of this machine.
func ThisMachine() Machine {
	m := Machine{
		Processor: "unknown processor", Cores: runtime.NumCPU(), MemoryGiB: "unknown", Kernel: oneLine("/proc/sys/kernel/osrelease"),
		Go: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH, Commit: commit(), Began: time.Now().UTC().Truncate(time.Second),
	}
	if name, ok := field("/proc/cpuinfo", "model name"); ok {
		m.Processor = name
	}
	if total, ok := field("/proc/meminfo", "MemTotal"); ok {
		var kb int64
		if _, err := fmt.Sscanf(total, "%d kB", &kb); err == nil {
			m.MemoryGiB = fmt.Sprintf("%.0f", float64(kb)/(1<<20))
		}
	}
	m.Load, _, _ = strings.Cut(oneLine("/proc/loadavg"), " ")
	return m
}

// String formats the description in two lines.
func (m Machine) String() string {
	return fmt.Sprintf("%d x %s, %s GiB, Linux %s, %s.\nCommit %s, %s, load average %s before the first measurement.",
		m.Cores, m.Processor, m.MemoryGiB, m.Kernel, m.Go, m.Commit, m.Began.Format("2006-01-02 15:04 MST"), m.Load)
}

func oneLine(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(data))
}

func field(file, name string) (string, bool) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", false
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimLeft(rest, "\t :"), true
		}
	}
	return "", false
}

func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// Memory contains the memory metrics of a Go program.
type Memory struct {
	// since its start
	Allocations, AllocatedBytes float64
	// Kept is the heap after the last garbage collection, derived from the goal of the next one.
	Kept       float64
	Goroutines float64
	// Collecting is the CPU time of garbage collection since its start, in seconds, as of the last collection.
	Collecting float64
}

// ReadMemory parses a page of metrics.
func ReadMemory(page []byte) (Memory, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		return Memory{}, fmt.Errorf("read metrics: %w", err)
	}
	value := func(name string) float64 {
		f := families[name]
		if f == nil || len(f.Metric) == 0 {
			err = fmt.Errorf("no metric %s", name)
			return 0
		}
		if counter := f.Metric[0].Counter; counter != nil {
			return counter.GetValue()
		}
		return f.Metric[0].Gauge.GetValue()
	}
	m := Memory{
		Allocations: value("go_memstats_mallocs_total"), AllocatedBytes: value("go_memstats_alloc_bytes_total"),
		Goroutines: value("go_goroutines"), Collecting: value("go_cpu_classes_gc_total_cpu_seconds_total"),
	}
	m.Kept = value("go_memstats_next_gc_bytes") * 100 / (100 + value("go_gc_gogc_percent"))
	return m, err
}
