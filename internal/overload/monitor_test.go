package overload

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/metrics"
	"portico.dev/internal/run/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLevelFollowsMemoryUse(t *testing.T) {
	type step struct {
		certain, possible uint64 // percent
		after             time.Duration
		want              Level
	}
	for name, steps := range map[string][]step{
		"most is in use": {{74, 74, 0, Normal}},
		"garbage is not": {{10, 104, 0, Normal}, {74, 104, time.Hour, Normal}},
		"up at once": {
			{80, 80, 0, Shedding}, {90, 90, 0, Critical}, {100, 100, 0, Exhausted},
		},
		"up by several":                   {{10, 10, 0, Normal}, {120, 120, 0, Exhausted}},
		"a collector that cannot keep up": {{10, 105, 0, Shedding}, {10, 115, 0, Critical}, {10, 130, 0, Exhausted}},
		"down one after the other, slowly": {
			{100, 100, 0, Exhausted},
			{10, 10, 0, Exhausted}, {10, 10, stepDownDelay, Critical},
			{10, 10, 0, Critical}, {10, 10, stepDownDelay / 2, Critical}, {10, 10, stepDownDelay / 2, Shedding},
			{10, 10, 0, Shedding}, {10, 10, stepDownDelay, Normal}, {10, 10, stepDownDelay, Normal},
		},
		"a little less is no end":     {{75, 75, 0, Shedding}, {65, 65, time.Hour, Shedding}, {64, 64, 0, Shedding}, {64, 64, stepDownDelay, Normal}},
		"less for a moment is no end": {{80, 80, 0, Shedding}, {60, 60, 0, Shedding}, {70, 70, stepDownDelay, Shedding}, {60, 60, stepDownDelay, Shedding}, {60, 60, stepDownDelay, Normal}},
		"up again on the way down":    {{90, 90, 0, Critical}, {77, 77, 0, Critical}, {77, 77, stepDownDelay, Shedding}, {90, 90, 0, Critical}},
	} {
		t.Run(name, func(t *testing.T) {
			l, now := levelTracker{limit: 1000}, time.Unix(1, 0)
			for i, s := range steps {
				now = now.Add(s.after)
				if got := l.update(Reading{InUse: 10 * s.certain, Allocated: 10 * s.possible}, now); got != s.want {
					t.Fatalf("level after step %d = %s, want %s", i, got, s.want)
				}
			}
		})
	}
}

// testEnv is a process whose memory the test sets.
type testEnv struct {
	mu          sync.Mutex // guards the fields below
	reading     Reading
	collections int
	idle        int
	cuts        []int64
	held        chan struct{} // A collection waits for it; nil: no wait.
}

func (w *testEnv) set(certain, possible uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reading.InUse, w.reading.Allocated = certain, possible
}

func (w *testEnv) read() Reading {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reading
}

func (w *testEnv) collect() {
	w.mu.Lock()
	w.collections++
	held := w.held
	w.mu.Unlock()
	if held != nil {
		<-held
	}
	w.mu.Lock()
	w.reading.Cycles++
	w.mu.Unlock()
}

func (w *testEnv) CloseIdle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.idle++
}

func (w *testEnv) CutLargest(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cuts = append(w.cuts, n)
}

func (w *testEnv) did() (collections, idle int, cuts []int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.collections, w.idle, slices.Clone(w.cuts)
}

// watched runs a Monitor with a limit of 1000 bytes over a testEnv, in a bubble.
func watched(t *testing.T, f func(w *testEnv, m *Monitor)) {
	synctest.Test(t, func(t *testing.T) {
		w := &testEnv{}
		m := New(Config{Limit: Limit{Bytes: 1000}, Metrics: metrics.NewOverload(prometheus.NewRegistry()), Logger: zap.NewNop()})
		m.read, m.collect = w.read, w.collect
		detach := m.Register(w)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		f(w, m)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := m.Level(); got != Normal {
			t.Errorf("level after the end = %s, want Normal", got)
		}
		detach()
	})
}

// pass advances the time of the bubble.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestNoActionWhileMemoryIsAvailable(t *testing.T) {
	watched(t, func(w *testEnv, m *Monitor) {
		w.set(740, 749)
		pass(time.Hour)
		if collections, idle, cuts := w.did(); collections != 0 || idle != 0 || cuts != nil || m.Level() != Normal {
			t.Errorf("%d collections, %d CloseIdle calls, cuts %v, level %s, want none and Normal", collections, idle, cuts, m.Level())
		}
	})
}

func TestMemoryShortageIsDetectedSoonAndEnds(t *testing.T) {
	watched(t, func(w *testEnv, m *Monitor) {
		pass(time.Second)
		w.set(800, 850)
		pass(slowInterval)
		if m.Level() != Shedding {
			t.Fatalf("level = %s, want Shedding", m.Level())
		}
		if _, idle, cuts := w.did(); idle == 0 || cuts != nil {
			t.Errorf("%d CloseIdle calls, cuts %v, want at least one call and no cuts", idle, cuts)
		}
		w.set(950, 960)
		pass(fastInterval)
		if _, _, cuts := w.did(); m.Level() != Critical || !slices.Equal(cuts, []int64{950 - 780}) {
			t.Fatalf("level = %s, cuts %v, want Critical and one cut of 170 bytes", m.Level(), cuts)
		}
		w.set(100, 200)
		pass(3*stepDownDelay + slowInterval)
		if m.Level() != Normal {
			t.Fatalf("level after the shortage = %s, want Normal", m.Level())
		}
		_, before, _ := w.did()
		pass(time.Minute)
		if _, idle, cuts := w.did(); idle != before || len(cuts) != 1 {
			t.Errorf("%d CloseIdle calls, %d before, cuts %v, want no more calls and one cut", idle, before, cuts)
		}
	})
}

func TestGarbageIsCollectedBeforeRequestsAreRefused(t *testing.T) {
	watched(t, func(w *testEnv, m *Monitor) {
		w.set(100, 850)
		pass(10 * time.Second)
		collections, idle, _ := w.did()
		if collections < 15 || collections > 21 || idle != 0 || m.Level() != Normal {
			t.Errorf("%d collections in 10 s, %d CloseIdle calls, level %s, want 15 to 21, 0 and Normal", collections, idle, m.Level())
		}
	})
}

func TestSlowGarbageCollectionIsNotRepeated(t *testing.T) {
	watched(t, func(w *testEnv, m *Monitor) {
		w.mu.Lock()
		w.held = make(chan struct{})
		w.mu.Unlock()
		w.set(850, 850)
		pass(time.Minute)
		if collections, idle, _ := w.did(); collections != 1 || idle < 1000 {
			t.Errorf("%d collections, %d readings, want 1 and at least 1000", collections, idle)
		}
		close(w.held)
	})
}

// Only a collection that began after a cut shows its effect.
func TestNextConnectionCutWaitsForGarbageCollection(t *testing.T) {
	watched(t, func(w *testEnv, m *Monitor) {
		w.set(950, 950)
		pass(minGCInterval)
		if _, _, cuts := w.did(); len(cuts) != 1 {
			t.Fatalf("cuts = %v, want one", cuts)
		}
		pass(20 * minGCInterval)
		if collections, _, cuts := w.did(); len(cuts) < 5 || len(cuts) > collections*3/4 {
			t.Errorf("cuts = %v within %d collections, want 5 to three quarters of the collections", cuts, collections)
		}
	})
}

func TestDetachedServerIsNotCalled(t *testing.T) {
	watched(t, func(w *testEnv, m *Monitor) {
		other := &testEnv{}
		detach := m.Register(other)
		w.set(850, 850)
		pass(time.Second)
		detach()
		_, before, _ := other.did()
		pass(time.Second)
		if _, idle, _ := other.did(); before == 0 || idle != before {
			t.Errorf("%d calls after detach, want %d and more than 0", idle, before)
		}
	})
}

func TestUserClasses(t *testing.T) {
	for name, c := range map[string]struct {
		user *user.DefaultInfo
		want UserClass
	}{
		"an administrator":                      {&user.DefaultInfo{Name: "root", Groups: []string{"system:masters"}}, Admin},
		"a node":                                {&user.DefaultInfo{Name: "system:node:n1", Groups: []string{"system:nodes"}}, System},
		"who is called like a node":             {&user.DefaultInfo{Name: "system:node:n1"}, Ordinary},
		"who is in the group of nodes":          {&user.DefaultInfo{Name: "eve", Groups: []string{"system:nodes"}}, Ordinary},
		"a controller":                          {&user.DefaultInfo{Name: "system:serviceaccount:kube-system:job-controller", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system"}}, System},
		"a service account of somebody":         {&user.DefaultInfo{Name: "system:serviceaccount:shop:web", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:shop"}}, Ordinary},
		"who is in the group of controllers":    {&user.DefaultInfo{Name: "eve", Groups: []string{"system:serviceaccounts:kube-system"}}, Ordinary},
		"kube-controller-manager":               {&user.DefaultInfo{Name: "system:kube-controller-manager"}, System},
		"kube-scheduler":                        {&user.DefaultInfo{Name: "system:kube-scheduler"}, System},
		"nobody":                                {&user.DefaultInfo{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}, Ordinary},
		"a namespace that begins like theirs":   {&user.DefaultInfo{Name: "system:serviceaccount:kube-system2:x", Groups: []string{"system:serviceaccounts:kube-system2"}}, Ordinary},
		"an administrator who is called a node": {&user.DefaultInfo{Name: "system:node:n1", Groups: []string{"system:nodes", "system:masters"}}, Admin},
	} {
		if got := UserClassOf(c.user); got != c.want {
			t.Errorf("UserClassOf(%s) = %d, want %d", name, got, c.want)
		}
	}
	if UserClassOf(nil) != Ordinary {
		t.Errorf("UserClassOf(nil) = %v, want Ordinary", UserClassOf(nil))
	}
	for level, want := range map[Level][3]bool{
		Normal: {true, true, true}, Shedding: {false, true, true}, Critical: {false, true, true}, Exhausted: {false, false, true},
	} {
		for c := Ordinary; c <= Admin; c++ {
			if got := level.Serves(c); got != want[c] {
				t.Errorf("%s.Serves(%d) = %v, want %v", level, c, got, want[c])
			}
		}
	}
}

func TestLowestMemoryLimitApplies(t *testing.T) {
	const gib = 1 << 30
	for name, c := range map[string]struct {
		setting   string
		group     uint64
		collector int64
		want      uint64
		source    string
	}{
		"none":                        {"", 0, math.MaxInt64, 0, ""},
		"a group":                     {"", 2 * gib, math.MaxInt64, 2 * gib / 100 * 90, "the control group"},
		"the collector's":             {"", 0, gib, gib, "GOMEMLIMIT"},
		"the collector's is less":     {"", 2 * gib, gib, gib, "GOMEMLIMIT"},
		"the collector's is too much": {"", gib, gib, gib / 100 * 90, "the control group"},
		"a flag":                      {"1Gi", 0, math.MaxInt64, gib / 100 * 90, "--memory-limit"},
		"a flag that is less":         {"1Gi", 2 * gib, math.MaxInt64, gib / 100 * 90, "--memory-limit"},
		"a flag that is more":         {"4Gi", 2 * gib, math.MaxInt64, 2 * gib / 100 * 90, "the control group"},
		"off":                         {"0", gib, gib, 0, ""},
	} {
		var group *memory.Cgroup
		if c.group > 0 {
			group = &memory.Cgroup{Limit: c.group}
		}
		l, err := find(c.setting, group, c.collector)
		if err != nil || l.Bytes != c.want || l.Source != c.source {
			t.Errorf("%s: limit = %d from %q, error %v, want %d from %q", name, l.Bytes, l.Source, err, c.want, c.source)
		}
	}
	for _, wrong := range []string{"much", "-1", "1Mi", "127Mi", "-1Gi", " "} {
		if err := CheckSetting(wrong); err == nil || !strings.Contains(err.Error(), "0 turns shedding off") {
			t.Errorf("CheckSetting(%q) = %v, want an error that contains \"0 turns shedding off\"", wrong, err)
		}
	}
}

func TestExistingMemoryLimitIsKept(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(before)
	undo := Limit{Bytes: 1 << 40}.SetMemoryLimit()
	if got := debug.SetMemoryLimit(-1); got != 1<<40 {
		t.Errorf("memory limit of the runtime = %d, want 1099511627776", got)
	}
	Limit{Bytes: 1 << 41}.SetMemoryLimit()()
	if got := debug.SetMemoryLimit(-1); got != 1<<40 {
		t.Errorf("existing memory limit = %d, want 1099511627776", got)
	}
	undo()
	Limit{}.SetMemoryLimit()()
	if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
		t.Errorf("memory limit after undo = %d, want math.MaxInt64", got)
	}
}

// Real readings: live memory counts as in use. Collected garbage does not. Memory of other processes in the cgroup does.
func TestMemoryReadings(t *testing.T) {
	const size = 64 << 20
	r := newReader(Limit{Bytes: 1 << 40})
	runtime.GC()
	empty := r.read()
	kept := make([]byte, size)
	for i := 0; i < size; i += 4096 {
		kept[i] = 1
	}
	if now := r.read(); now.Allocated < empty.Allocated+size/2 {
		t.Errorf("%d bytes allocated, %d before, want at least %d more", now.Allocated, empty.Allocated, size/2)
	}
	runtime.GC()
	full := r.read()
	if full.InUse < empty.InUse+size/2 || full.Cycles <= empty.Cycles {
		t.Errorf("%d bytes in use, %d before, %d collections, %d before, want both to grow", full.InUse, empty.InUse, full.Cycles, empty.Cycles)
	}
	runtime.KeepAlive(kept)
	kept = nil
	runtime.GC()
	if now := r.read(); now.InUse > full.InUse-size/2 {
		t.Errorf("%d bytes in use after a collection, %d before, want at least %d less", now.InUse, full.InUse, size/2)
	}

	dir := t.TempDir()
	for name, text := range map[string]string{"memory.max": "9000000000000\n", "memory.current": "8000000000000\n", "memory.stat": "active_file 1000000000000\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	group := memory.FindCgroupIn(dir, "0::/\n")
	r = newReader(Limit{Bytes: 1 << 40, group: group})
	if now := r.read(); now.InUse < 6_900_000_000_000 || now.InUse > 7_000_000_000_000 {
		t.Errorf("%d bytes in use, want 6900000000000 to 7000000000000", now.InUse)
	}
}
