package hostmetrics

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const fixtures = "testdata/proc"

func TestReadingOfAFixture(t *testing.T) {
	s, err := New(Config{ProcPath: fixtures})
	must(t, err)
	r, err := s.read()
	must(t, err)
	// user 10 + nice 2 + system 3 + irq 0.5 + softirq 0.6 seconds; not idle, iowait, steal or (again) guest.
	if math.Abs(r.busy-16.1) > 1e-9 {
		t.Errorf("busy %v s, want 16.1", r.busy)
	}
	if want := uint64(3000000 * 1024); r.workingSet != want {
		t.Errorf("working set %d, want %d", r.workingSet, want)
	}
}

func TestUsageBetweenReadings(t *testing.T) {
	at := time.Now()
	for _, c := range []struct {
		situation string
		from, to  reading
		cores     float64
		wrong     string
	}{
		{"half a core", reading{at: at, busy: 10}, reading{at: at.Add(4 * time.Second), busy: 12}, 0.5, ""},
		{"idle", reading{at: at, busy: 10}, reading{at: at.Add(time.Second), busy: 10}, 0, ""},
		{"counters began anew", reading{at: at, busy: 10}, reading{at: at.Add(time.Second), busy: 1}, 0, "backwards"},
		{"no time between", reading{at: at}, reading{at: at}, 0, "apart"},
		{"the reading before failed", reading{}, reading{at: at}, 0, "two in a row"},
	} {
		t.Run(c.situation, func(t *testing.T) {
			u, err := usage(c.from, c.to)
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("error %v", err)
				}
				return
			}
			must(t, err)
			if u.Cores != c.cores || u.Window != c.to.at.Sub(c.from.at) || !u.Timestamp.Equal(c.to.at) {
				t.Errorf("usage %+v", u)
			}
		})
	}
}

func TestSamplerOverTime(t *testing.T) {
	proc := t.TempDir()
	write := func(name, text string) { must(t, os.WriteFile(filepath.Join(proc, name), []byte(text), 0o600)) }
	meminfo, err := os.ReadFile(filepath.Join(fixtures, "meminfo"))
	must(t, err)
	write("meminfo", string(meminfo))
	write("stat", "cpu  100 0 0 0 0 0 0 0 0 0\n")
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{ProcPath: proc, Resolution: 10 * time.Second})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()

		synctest.Wait()
		if _, ok := s.Latest(); ok || s.Stored(ctx) == nil {
			t.Error("there is an answer after one reading")
		}
		write("stat", "cpu  150 0 0 0 0 0 0 0 0 0\n") // half a second of work in the first second
		time.Sleep(time.Second)
		synctest.Wait()
		u, ok := s.Latest()
		if !ok || u.Window != time.Second || u.Cores != 0.5 || s.Stored(ctx) != nil {
			t.Errorf("after the first window: %+v %t", u, ok)
		}
		write("stat", "cpu  2150 0 0 0 0 0 0 0 0 0\n") // twenty seconds of work in ten
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if u, _ := s.Latest(); u.Window != 10*time.Second || u.Cores != 2 {
			t.Errorf("after the second window: %+v", u)
		}
		must(t, os.Remove(filepath.Join(proc, "stat")))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if u, ok := s.Latest(); ok || s.Stored(ctx) == nil || s.Timely(ctx) != nil {
			t.Errorf("after a failed reading: %+v", u)
		}
		write("stat", "cpu  3000 0 0 0 0 0 0 0 0 0\n")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if _, ok := s.Latest(); !ok {
			t.Error("no answer after two good readings")
		}
		cancel()
		must(t, <-done)
		time.Sleep(31 * time.Second)
		if s.Timely(t.Context()) == nil {
			t.Error("a sampler that stopped is timely")
		}
	})
}

func TestThisMachine(t *testing.T) {
	s, err := New(Config{Resolution: 50 * time.Millisecond})
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if u, ok := s.Latest(); ok {
			if u.Cores < 0 || u.Cores > 2*float64(runtime.NumCPU()) || u.WorkingSet == 0 || u.Window <= 0 {
				t.Errorf("usage %+v", u)
			}
			break
		}
		select {
		case <-ctx.Done():
			t.Fatal("no usage")
		case <-tick.C:
		}
	}
	cancel()
	must(t, <-done)
}

func TestNoProcfs(t *testing.T) {
	if _, err := New(Config{ProcPath: filepath.Join(t.TempDir(), "nothing")}); err == nil {
		t.Error("a path that is not there is accepted")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
