package apiservice

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/run"
	"portico.dev/internal/transport"
)

// backendDouble is a probe transport with a replaceable answer. It records the requests.
type backendDouble struct {
	mu     sync.Mutex
	answer func(ctx context.Context, path string) (int, error)
	asked  []string
	at     []time.Time
}

func (b *backendDouble) set(answer func(ctx context.Context, path string) (int, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = answer
}

// reset clears the recorded requests and returns them.
func (b *backendDouble) reset() (paths []string, at []time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	paths, at = b.asked, b.at
	b.asked, b.at = nil, nil
	return paths, at
}

func (b *backendDouble) RoundTrip(r *http.Request) (*http.Response, error) {
	b.mu.Lock()
	b.asked = append(b.asked, r.URL.Path)
	b.at = append(b.at, time.Now())
	answer := b.answer
	b.mu.Unlock()
	code, err := answer(r.Context(), r.URL.Path)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: code, Body: http.NoBody}, nil
}

func well(context.Context, string) (int, error) { return 200, nil }
func refuses(context.Context, string) (int, error) {
	return 0, &transport.Error{Op: transport.OpDial, Err: syscall.ECONNREFUSED}
}
func hangs(ctx context.Context, _ string) (int, error) { return hang(ctx) }

var gvA, gvB, gvC = schema.GroupVersion{Group: "a.io", Version: "v1"}, schema.GroupVersion{Group: "b.io", Version: "v1"}, schema.GroupVersion{Group: "c.io", Version: "v1"}

// monitored runs a monitor of b in a bubble until the test ends.
func monitored(t *testing.T, b *backendDouble, gvs ...schema.GroupVersion) (m *monitor, changes *atomic.Int64) {
	t.Helper()
	changes = new(atomic.Int64)
	return monitoredWith(t, b, func(m *monitor) { m.historyChanged = func([]schema.GroupVersion) { changes.Add(1) } }, gvs...), changes
}

// monitoredWith is like monitored, and changes the monitor before it runs.
func monitoredWith(t *testing.T, b *backendDouble, change func(*monitor), gvs ...schema.GroupVersion) *monitor {
	t.Helper()
	m := newMonitor(b, func() int { return 1 }, "https://server.metrics.svc:443", newProber(), func([]schema.GroupVersion) {})
	change(m)
	m.watch(gvs)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := run.NewTimerQueue()
		m.start(r)
		r.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	synctest.Wait()
	return m
}

func TestBusyHealthyBackendIsProbedOncePerRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backendDouble{answer: well}
		monitored(t, b, gvA, gvB, gvC)
		if paths, _ := b.reset(); len(paths) != 3 {
			t.Fatalf("first probes = %v, want one of each of 3 group-versions", paths)
		}
		time.Sleep(10*healthyInterval + healthyInterval/2)
		synctest.Wait()
		paths, _ := b.reset()
		if n := len(paths); n < 8 || n > 12 {
			t.Errorf("%d probes in ten and a half intervals, want 8 to 12", n)
		}
		count := make(map[string]int)
		for _, p := range paths {
			count[p]++
		}
		for _, gv := range []schema.GroupVersion{gvA, gvB, gvC} {
			if n := count[DiscoveryPath(gv)]; n < 2 || n > 5 {
				t.Errorf("%d probes of %v in ten and a half intervals, want 2 to 5: %v", n, gv, count)
			}
		}
	})
}

func TestRefusedConnectionStopsBackendAndBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backendDouble{answer: well}
		m, _ := monitored(t, b, gvA, gvB, gvC)
		b.reset()
		b.set(refuses)
		time.Sleep(minProbeGap)
		m.probeSoon()
		synctest.Wait()
		for _, gv := range []schema.GroupVersion{gvA, gvB, gvC} {
			if m.history(gv).up {
				t.Errorf("%v is still up after a refused connection, want down", gv)
			}
		}
		// Two attempts on one path are enough, because a refused connection holds for all three group-versions.
		if paths, _ := b.reset(); len(paths) != 2 {
			t.Errorf("probes after a refused connection = %v, want 2", paths)
		}

		time.Sleep(fastRetryTime)
		_, at := b.reset()
		if rounds := len(at) / 2; rounds < 25 || rounds > 40 {
			t.Errorf("%d rounds in the first %v of an outage, want 25 to 40", rounds, fastRetryTime)
		}
		time.Sleep(5 * time.Minute)
		b.reset()
		time.Sleep(10 * time.Minute)
		_, at = b.reset()
		if rounds := len(at) / 2; rounds < 100 || rounds > 150 {
			t.Errorf("%d rounds in ten minutes of a long outage, want 100 to 150, one in about %v", rounds, maxRetry)
		}

		b.set(well)
		time.Sleep(2 * maxRetry)
		synctest.Wait()
		for _, gv := range []schema.GroupVersion{gvA, gvB, gvC} {
			if !m.history(gv).up {
				t.Errorf("%v is still down after the backend recovered, want up", gv)
			}
		}
	})
}

func TestBackendReturnIsDetectedWithinSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backendDouble{answer: well}
		m, _ := monitored(t, b, gvA)
		b.set(refuses)
		time.Sleep(minProbeGap)
		m.probeSoon()
		time.Sleep(10 * time.Second)
		b.set(well)
		time.Sleep(1200 * time.Millisecond)
		synctest.Wait()
		if !m.history(gvA).up {
			t.Errorf("%v is still down 1.2s after a restart of ten seconds ended, want up", gvA)
		}
	})
}

func TestChangedBackendEndsItsBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backendDouble{answer: refuses}
		m, _ := monitored(t, b, gvA)
		time.Sleep(10 * time.Minute)
		b.reset()
		b.set(well)
		m.probeFast()
		time.Sleep(minProbeGap) // the last attempt can be very recent
		synctest.Wait()
		if !m.history(gvA).up {
			t.Errorf("%v is down after its endpoints changed, want up by an immediate probe", gvA)
		}
	})
}

func TestSecondSlowFailureMakesBackendUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backendDouble{answer: well}
		m, changes := monitored(t, b, gvA)
		before := changes.Load()
		b.set(hangs)
		m.probeSoon()
		time.Sleep(minProbeGap + probeTimeout + hedgeDelay)
		synctest.Wait()
		if h := m.history(gvA); !h.up || h.failures != 1 || changes.Load() != before {
			t.Fatalf("after one slow answer: history %+v, %d changes, want up, 1 failure and 0 changes", h, changes.Load()-before)
		}
		time.Sleep(minRetry*2 + probeTimeout + hedgeDelay)
		synctest.Wait()
		if h := m.history(gvA); h.up || changes.Load() != before+1 {
			t.Errorf("after two slow answers: history %+v, %d changes, want down and 1 change", h, changes.Load()-before)
		}
	})
}

func TestGroupVersionFailureDoesNotAffectOtherVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backendDouble{answer: well}
		m, _ := monitored(t, b, gvA, gvB)
		b.set(func(_ context.Context, path string) (int, error) {
			if path == DiscoveryPath(gvA) {
				return 404, nil
			}
			return 200, nil
		})
		time.Sleep(3 * healthyInterval)
		synctest.Wait()
		if m.history(gvA).up || !m.history(gvB).up {
			t.Errorf("history of the failing group-version = %+v, of the other = %+v, want down and up", m.history(gvA), m.history(gvB))
		}
	})
}

func TestUnchangedFailureIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var port atomic.Int64
		b := &backendDouble{answer: func(context.Context, string) (int, error) {
			return 0, &transport.Error{Op: transport.OpDial, Err: fmt.Errorf("dial tcp 10.0.0.1:%d: no", port.Add(1))}
		}}
		_, changes := monitored(t, b, gvA)
		time.Sleep(time.Hour)
		if n := changes.Load(); n != 1 {
			t.Errorf("%d reports of one fault, want 1", n)
		}
	})
}

func TestAnsweredRequestsReplaceProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backendDouble{answer: well}
		m, _ := monitored(t, b, gvA)
		b.reset()
		for range 600 {
			m.recordAnswer()
			time.Sleep(time.Second)
		}
		if paths, _ := b.reset(); len(paths) < 1 || len(paths) > 3 {
			t.Errorf("%d probes in ten minutes of traffic, want 1 to 3, because traffic replaces probes for %v at most", len(paths), maxTrafficTrust)
		}
		time.Sleep(2 * healthyInterval)
		if paths, _ := b.reset(); len(paths) == 0 {
			t.Error("no probe within two intervals after the traffic ended, want at least 1")
		}
	})
}

func TestManyFailingRequestsCauseFewProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backendDouble{answer: well}
		m, _ := monitored(t, b, gvA)
		b.reset()
		for range 1000 {
			m.probeSoon()
			time.Sleep(time.Millisecond)
		}
		if paths, _ := b.reset(); len(paths) > 5 {
			t.Errorf("%d probes in a second of failing requests, want at most 5", len(paths))
		}
	})
}

func TestReaddedGroupVersionStartsWithoutHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backendDouble{answer: well}
		m, _ := monitored(t, b, gvA)
		m.watch(nil)
		b.reset()
		time.Sleep(3 * healthyInterval)
		if paths, _ := b.reset(); len(paths) != 0 {
			t.Errorf("probes without a group-version to watch = %v, want none", paths)
		}
		b.set(hangs)
		m.watch([]schema.GroupVersion{gvA})
		synctest.Wait()
		if m.history(gvA).probed() {
			t.Errorf("history of %v counts as probed after the group-version was away, want no result for the new endpoints yet", gvA)
		}
	})
}

func TestProbeInterval(t *testing.T) {
	for failures, want := range []time.Duration{healthyInterval, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, maxRetry, maxRetry} {
		if got := probeInterval(failures, false); got != want {
			t.Errorf("probeInterval(%d, false) = %v, want %v", failures, got, want)
		}
		if got := probeInterval(failures, true); failures > 0 && got > fastRetry {
			t.Errorf("probeInterval(%d, true) = %v, want at most %v", failures, got, fastRetry)
		}
	}
	if got := probeInterval(1_000_000, false); got != maxRetry {
		t.Errorf("probeInterval(1000000, false) = %v, want %v", got, maxRetry)
	}
	for range 1000 {
		if d := jitter(healthyInterval); d < 25*time.Second || d > 35*time.Second {
			t.Fatalf("jitter(%v) = %v, want 25s to 35s", healthyInterval, d)
		}
	}
}

// speaking is a probe transport that answers with the current code and body.
type speaking struct {
	mu   sync.Mutex
	code int
	says string
}

func (s *speaking) say(code int, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.code, s.says = code, what
}

func (s *speaking) RoundTrip(*http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &http.Response{StatusCode: s.code, Body: io.NopCloser(strings.NewReader(s.says))}, nil
}

func TestDocumentDifferenceIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, told := &speaking{code: 200, says: "foos"}, new(atomic.Int64)
		m := newMonitor(b, func() int { return 1 }, "https://server.metrics.svc:443", newProber(), func([]schema.GroupVersion) {})
		m.documentsMayDiffer = func() { told.Add(1) }
		m.watch([]schema.GroupVersion{gvA})
		r := run.NewTimerQueue()
		m.start(r)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Run(ctx)
		}()
		for _, step := range []struct {
			situation string
			code      int
			says      string
			meanwhile func()
			told      int64
		}{
			{"as before", 200, "foos", nil, 0},
			{"one more", 200, "foos and bars", nil, 1},
			{"as before", 200, "foos and bars", nil, 0},
			{"it fails", 500, "boom", nil, 0},
			{"it is back and says the same", 200, "foos and bars", nil, 0},
			{"it fails again", 500, "boom", nil, 0},
			{"it is back and says something else", 200, "bars", nil, 1},
			{"more than is read", 200, strings.Repeat("x", maxProbeBody+1), nil, 0},
			{"the end of that", 200, "bars", nil, 0},
			{"a connection was lost", 200, "bars", m.probeAfterFault, 1},
			{"its endpoints changed", 200, "bars", m.probeFast, 1},
			{"a connection was lost, and it is down", 500, "boom", m.probeAfterFault, 0},
			{"it is back after that", 200, "bars", nil, 1},
			{"somebody waits for it", 200, "bars", m.probeSoon, 0},
		} {
			b.say(step.code, step.says)
			if step.meanwhile != nil {
				step.meanwhile()
			}
			time.Sleep(2 * healthyInterval)
			synctest.Wait()
			if n := told.Swap(0); n != step.told {
				t.Errorf("%s: documentsMayDiffer called %d times, want %d", step.situation, n, step.told)
			}
		}
		cancel()
		<-done
	})
}

// connected reports the transport's failures and answers to the controller, as in the whole program.
func connected(h *env, _ *Config, o *transport.Options) {
	// The controller is created after the transport and before the first connection.
	o.OnFailure = func(b *transport.Backend, _ error) { h.backendFailed(b) }
	o.OnSuccess = func(b *transport.Backend) { h.backendAnswered(b) }
}

func TestIdleBackendStopIsDetectedWithoutRequest(t *testing.T) {
	t.Parallel()
	h := open(t, nil, connected)
	b := h.serve("server")
	h.add(external("server"))
	h.add(h.remote("example.com", "v1", "server", b.port()))
	h.is("v1.example.com", "True", "Passed")
	b.stop()
	start := time.Now()
	h.is("v1.example.com", "False", "FailedDiscoveryCheck")
	if took := time.Since(start); took > 20*time.Second { // the next probe is after 30
		t.Errorf("v1.example.com became unavailable %v after its idle backend stopped, want at most 20s", took)
	}
}

func TestSingleAnsweredRequestReplacesProbe(t *testing.T) {
	h := open(t, nil, connected)
	b := h.serve("server")
	h.add(external("server"))
	h.add(h.remote("example.com", "v1", "server", b.port()))
	h.is("v1.example.com", "True", "Passed")
	if at := h.DebugState().Backends[0].LastAnswer; !at.IsZero() {
		t.Errorf("LastAnswer after probes only = %v, want zero", at)
	}
	r, _ := h.Table().Lookup(gvExample)
	request(t, r.Backend)
	if at := h.DebugState().Backends[0].LastAnswer; time.Since(at) > time.Minute {
		t.Errorf("LastAnswer after an answered request = %v, want a time within the last minute", at)
	}
}
