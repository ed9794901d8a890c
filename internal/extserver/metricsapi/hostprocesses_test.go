package metricsapi

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/procfs"
)

// ticks is the number of clock ticks per second on Linux.
const ticks = 100

type fakeProcess struct {
	pid, start    int
	command       string
	flags         int
	seconds       int
	resident      int // pages
	group         string
	withoutGroups bool
}

func (m machine) run(processes ...fakeProcess) {
	m.t.Helper()
	entries, err := os.ReadDir(m.proc)
	must(m.t, err)
	for _, e := range entries {
		must(m.t, os.RemoveAll(filepath.Join(m.proc, e.Name())))
	}
	for _, p := range processes {
		dir := fmt.Sprint(p.pid)
		m.write(m.proc, dir+"/stat", fmt.Sprintf("%d (%s) S 1 1 1 0 -1 %d 0 0 0 0 %d 0 0 0 20 0 1 0 %d 1000 %d 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
			p.pid, p.command, p.flags, p.seconds*ticks, p.start, p.resident))
		if !p.withoutGroups {
			m.write(m.proc, dir+"/cgroup", "0::"+p.group+"\n")
		}
	}
}

func TestProcessesAreGroupedByUnitOrCommand(t *testing.T) {
	m := newMachine(t)
	fs, err := procfs.NewFS(m.proc)
	must(t, err)
	p := processes{fs: fs}
	read := func() podReadings {
		t.Helper()
		f, err := p.read("host")
		must(t, err)
		return f
	}
	seconds := func(f podReadings, name string) float64 {
		t.Helper()
		r, ok := f[PodKey{Namespace: "host", Name: dnsName(name)}].containers[dnsLabel(name)]
		if !ok {
			t.Errorf("containers = %v, want %s among them", lines(f), name)
		}
		return r.Seconds
	}
	nginx := "/system.slice/nginx.service"
	m.run(
		fakeProcess{pid: 10, start: 5, command: "nginx", seconds: 100, resident: 1 << 8, group: nginx},
		fakeProcess{pid: 11, start: 6, command: "worker", seconds: 200, resident: 2 << 8, group: nginx + "/inner.scope"},
		fakeProcess{pid: 12, start: 7, command: "a (b) c", seconds: 300, resident: 1 << 8, group: "/"},
		fakeProcess{pid: 13, start: 1, command: "kworker/0:1", flags: kernelThread, seconds: 4, group: "/"},
		fakeProcess{pid: 14, start: 8, command: "closed", seconds: 1, resident: 1 << 8, withoutGroups: true},
	)
	first := read()
	page := uint64(os.Getpagesize())
	unit := first[PodKey{Namespace: "host", Name: "nginx.service"}]
	if got := unit.containers["nginx-service"].WorkingSet; got != 3<<8*page || unit.labels[unitLabel] != "nginx.service" || unit.labels[sliceLabel] != "system.slice" {
		t.Errorf("nginx.service: working set = %d, labels = %v, want the sum of its processes and its unit and slice", got, unit.labels)
	}
	if len(first) != 4 || seconds(first, "nginx.service") != 0 || seconds(first, kernelGroup) != 0 || seconds(first, "a (b) c") != 0 || seconds(first, "closed") != 0 {
		t.Errorf("first scan = %v, want 4 groups without CPU time", lines(first))
	}
	// One process worked, one ended, one reused the number of another, one is new. No counter decreases.
	m.run(
		fakeProcess{pid: 10, start: 5, command: "nginx", seconds: 101, resident: 1 << 8, group: nginx},
		fakeProcess{pid: 15, start: 90, command: "worker", seconds: 2, resident: 1 << 8, group: nginx},
		fakeProcess{pid: 12, start: 95, command: "a (b) c", seconds: 3, resident: 1 << 8, group: "/"},
		fakeProcess{pid: 13, start: 1, command: "kworker/0:1", flags: kernelThread, seconds: 5, group: "/"},
	)
	second := read()
	if len(second) != 3 || seconds(second, "nginx.service") != 3 || seconds(second, "a (b) c") != 3 || seconds(second, kernelGroup) != 1 {
		t.Errorf("second scan = %v, want 3 groups with the CPU time since the first scan", lines(second))
	}
	m.run(fakeProcess{pid: 10, start: 5, command: "nginx", seconds: 102, resident: 1 << 8, group: nginx})
	if third := read(); len(third) != 1 || seconds(third, "nginx.service") != 4 {
		t.Errorf("third scan = %v, want nginx.service with 4 seconds", lines(third))
	}
}
