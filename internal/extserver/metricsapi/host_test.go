package metricsapi

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"portico.dev/pkg/extension"
)

const fixtures = "testdata/proc"

func TestFixtureReadingMatchesKernelCounters(t *testing.T) {
	s, err := NewHostSource(HostConfig{Node: "n", ProcPath: fixtures})
	must(t, err)
	r, err := readNode(s.fs)
	must(t, err)
	// user 10 + nice 2 + system 3 + irq 0.5 + softirq 0.6 seconds. idle, iowait, steal and guest are not included (guest is part of
	// user).
	if math.Abs(r.Seconds-16.1) > 1e-9 {
		t.Errorf("busy time = %v s, want 16.1", r.Seconds)
	}
	if want := uint64(3000000 * 1024); r.WorkingSet != want {
		t.Errorf("working set = %d, want %d", r.WorkingSet, want)
	}
}

// machine is a procfs and a cgroup tree that a test writes.
type machine struct {
	t            *testing.T
	proc, cgroup string
}

func newMachine(t *testing.T) machine {
	m := machine{t, t.TempDir(), t.TempDir()}
	meminfo, err := os.ReadFile(filepath.Join(fixtures, "meminfo"))
	must(t, err)
	m.write(m.proc, "meminfo", string(meminfo))
	m.write(m.cgroup, "cgroup.controllers", "cpu memory")
	m.write(m.cgroup, "system.slice/a.service/memory.current", "5000")
	m.write(m.cgroup, "system.slice/a.service/memory.stat", "inactive_file 1000")
	return m
}

func (m machine) write(root, name, text string) {
	name = filepath.Join(root, name)
	must(m.t, os.MkdirAll(filepath.Dir(name), 0o700))
	must(m.t, os.WriteFile(name, []byte(text), 0o600))
}

// spent sets the CPU time since the start of the machine and of its one unit.
func (m machine) spent(node, unit time.Duration) {
	m.write(m.proc, "stat", fmt.Sprintf("cpu  %d 0 0 0 0 0 0 0 0 0\n", node/(10*time.Millisecond)))
	m.write(m.cgroup, "system.slice/a.service/cpu.stat", fmt.Sprintf("usage_usec %d\n", unit.Microseconds()))
}

func TestSamplerComputesUsageOverTime(t *testing.T) {
	m := newMachine(t)
	m.spent(time.Second, time.Second)
	synctest.Test(t, func(t *testing.T) {
		s, err := NewHostSource(HostConfig{Node: "n", NodeLabels: func() map[string]string { return map[string]string{"k": "v"} },
			ProcPath: m.proc, CgroupPath: m.cgroup, Resolution: 10 * time.Second})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		expect := func(when string, window time.Duration, node, unit float64) {
			t.Helper()
			nodes, _ := s.Nodes(ctx, extension.Query{})
			pods, _ := s.Pods(ctx, extension.Query{Namespace: "host", Name: "a.service"})
			if len(nodes) != 1 || len(pods) != 1 || s.Stored(ctx) != nil || s.LastError() != nil {
				t.Fatalf("%s: nodes = %+v, pods = %+v, LastError = %v, want one node, one pod and no error", when, nodes, pods, s.LastError())
			}
			if n := nodes[0]; n.Name != "n" || n.Labels["k"] != "v" || n.Window != window || n.Cores != node {
				t.Errorf("%s: node = %+v, want %v cores over %s", when, n, node, window)
			}
			if p := pods[0]; p.Window != window || p.Containers[0].Cores != unit || p.Containers[0].WorkingSet != 4000 || p.Labels[unitLabel] != "a.service" {
				t.Errorf("%s: pod = %+v, want %v cores over %s", when, p, unit, window)
			}
		}
		synctest.Wait()
		if !s.Empty() || s.Stored(ctx) == nil {
			t.Error("sampler has an answer after one reading, want none")
		}
		m.spent(1500*time.Millisecond, 1250*time.Millisecond)
		pass(time.Second)
		expect("after the first window", time.Second, 0.5, 0.25)
		m.spent(21500*time.Millisecond, 6250*time.Millisecond)
		pass(10 * time.Second)
		expect("after the second window", 10*time.Second, 2, 0.5)

		must(t, os.Remove(filepath.Join(m.proc, "stat")))
		pass(10 * time.Second)
		if nodes, _ := s.Nodes(ctx, extension.Query{}); len(nodes) != 0 || s.Stored(ctx) == nil || s.Timely(ctx) != nil || s.LastError() == nil {
			t.Errorf("nodes after a failed reading = %+v, want none and an error", nodes)
		}
		if pods, _ := s.Pods(ctx, extension.Query{}); len(pods) != 1 {
			t.Errorf("%d pods after the reading of the node failed, want 1", len(pods))
		}
		m.spent(22500*time.Millisecond, 1*time.Second) // The unit restarted.
		pass(10 * time.Second)
		if pods, _ := s.Pods(ctx, extension.Query{}); len(pods) != 0 {
			t.Errorf("pods after a restart of the unit = %+v, want none", pods)
		}
		m.spent(32500*time.Millisecond, 6*time.Second)
		pass(10 * time.Second)
		expect("after two good readings", 10*time.Second, 1, 0.5)

		cancel()
		must(t, <-done)
		time.Sleep(31 * time.Second)
		if s.Timely(t.Context()) == nil || !s.Empty() {
			t.Error("sampler that stopped is timely or not empty, want neither")
		}
	})
}

func TestHostSourceOnThisMachine(t *testing.T) {
	ours := ourGroup(t)
	// The counters are read shortly before or after the clock. The delay between the two must be small compared to a window.
	s, err := NewHostSource(HostConfig{Node: "n", Resolution: time.Second, Pods: Processes})
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		nodes, _ := s.Nodes(ctx, extension.Query{})
		self, _ := s.Pods(ctx, extension.Query{Namespace: "host", Name: dnsName(ours)})
		if len(nodes) == 1 && len(self) == 1 {
			if u := nodes[0]; u.Cores < 0 || u.Cores > 2*float64(runtime.NumCPU()) || u.WorkingSet == 0 || u.Window <= 0 {
				t.Errorf("node = %+v, want plausible usage", u)
			}
			if c := self[0].Containers[0]; c.Name != dnsLabel(ours) || c.WorkingSet == 0 || c.Cores < 0 || c.Cores > 2*float64(runtime.NumCPU()) {
				t.Errorf("container of this test = %+v, want plausible usage", c)
			}
			break
		}
		select {
		case <-ctx.Done():
			t.Fatalf("no usage within the deadline: %v, want a node and this test", s.LastError())
		case <-tick.C:
		}
	}
	cancel()
	must(t, <-done)
}

func TestInvalidHostConfigsAreRejected(t *testing.T) {
	for situation, c := range map[string]HostConfig{
		"no node":                  {},
		"no procfs":                {Node: "n", ProcPath: filepath.Join(t.TempDir(), "nothing")},
		"an unknown grouping":      {Node: "n", Pods: "containers"},
		"a namespace that is none": {Node: "n", PodNamespace: "Host_1"},
	} {
		if _, err := NewHostSource(c); err == nil {
			t.Errorf("NewHostSource with %s: error = nil, want an error", situation)
		}
	}
}
