package apiservice

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"portico.dev/internal/transport"
)

// silenceReport is the silence that the transport reports.
type silenceReport struct {
	since  atomic.Int64 // Unix nanoseconds, 0 for not silent
	broken atomic.Bool
}

func (q *silenceReport) begin() { q.since.Store(time.Now().UnixNano()) }
func (q *silenceReport) over()  { q.since.Store(0) }
func (q *silenceReport) answers(after time.Duration) func(context.Context, string) (int, error) {
	return func(ctx context.Context, _ string) (int, error) {
		select {
		case <-time.After(after):
			q.over()
			return http.StatusOK, nil
		case <-ctx.Done():
			return hang(ctx)
		}
	}
}

// monitoredWithSilence is like monitored, with a transport that reports silence.
func monitoredWithSilence(t *testing.T, b *backendDouble, q *silenceReport) *monitor {
	t.Helper()
	return monitoredWith(t, b, func(m *monitor) {
		m.silence = func() transport.Silence {
			since := q.since.Load() // read once, because an attempt can end the silence in the meantime
			if since == 0 {
				return transport.Silence{}
			}
			return transport.Silence{Since: time.Unix(0, since), Broken: q.broken.Load()}
		}
	}, gvA)
}

// fallsIn waits until the group-version is down, at most for the given time, and returns the time that it waited.
func fallsIn(m *monitor, most time.Duration) time.Duration {
	start := time.Now()
	for time.Since(start) < most && m.history(gvA).up {
		time.Sleep(50 * time.Millisecond)
	}
	return time.Since(start)
}

func TestLongHangMakesBackendUnavailable(t *testing.T) {
	for name, c := range map[string]struct {
		broken bool
		want   time.Duration
	}{
		"connections are alive":  {false, hungTimeout},
		"connections are silent": {true, deadTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, q := &backendDouble{answer: well}, &silenceReport{}
				m := monitoredWithSilence(t, b, q)
				b.set(hangs)
				q.broken.Store(c.broken)
				q.begin()
				time.Sleep(time.Second) // until the transport reports the silence
				m.probeSoon()
				took := time.Second + fallsIn(m, time.Minute)
				if took < c.want || took > c.want+2*hangCheckInterval {
					t.Errorf("the backend became unavailable after %v, want %v", took, c.want)
				}
			})
		})
	}
}

func TestSlowBackendStaysAvailable(t *testing.T) {
	const slow = 3 * time.Second
	synctest.Test(t, func(t *testing.T) {
		b, q := &backendDouble{answer: well}, &silenceReport{}
		m := monitoredWithSilence(t, b, q)
		b.set(q.answers(slow)) // suddenly
		for range 100 {        // requests one after another, each of which is reported as overdue
			q.begin()
			time.Sleep(time.Second)
			m.probeSoon()
			if fallsIn(m, slow-time.Second) < slow-time.Second {
				t.Fatalf("history of a slow backend = %+v, want up", m.history(gvA))
			}
			q.over()
			m.recordAnswer()
		}
	})
}

func TestUsuallySlowBackendGetsLongerLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, q := &backendDouble{}, &silenceReport{}
		b.set(q.answers(4 * time.Second))
		m := monitoredWithSilence(t, b, q)
		time.Sleep(5 * time.Second)
		for range 100 { // clients that leave before they receive an answer
			q.begin()
			time.Sleep(time.Second)
			m.probeSoon()
			if took := fallsIn(m, 10*time.Second); took < 10*time.Second {
				t.Fatalf("the usually slow backend became unavailable after %v, want up: %+v", took, m.history(gvA))
			}
		}
	})
}

func TestResponseClearsHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, q := &backendDouble{answer: well}, &silenceReport{}
		m := monitoredWithSilence(t, b, q)
		b.set(hangs)
		q.begin()
		m.probeSoon()
		fallsIn(m, time.Minute)
		if h := m.history(gvA); h.up {
			t.Fatalf("history after a hang = %+v, want down", h)
		}
		q.over()
		m.recordAnswer() // the answer to a request that was sent before
		if h := m.history(gvA); !h.up || h.good() {
			t.Errorf("history after an answer = %+v, want up, and not confirmed yet", h)
		}
		// A probe must confirm it, and has the full timeout.
		b.set(q.answers(4 * time.Second))
		if took := fallsIn(m, 20*time.Second); took < 20*time.Second {
			t.Errorf("the backend became unavailable again after %v, want up for 20s", took)
		}
		if h := m.history(gvA); !h.good() {
			t.Errorf("history after a successful probe = %+v, want good", h)
		}
	})
}

func TestProbeOfUnavailableBackendHasFullTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, q := &backendDouble{answer: well}, &silenceReport{}
		m := monitoredWithSilence(t, b, q)
		b.set(hangs)
		q.begin()
		m.probeSoon()
		fallsIn(m, time.Minute)
		b.set(q.answers(4 * time.Second))
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if h := m.history(gvA); !h.up {
			t.Errorf("history of a backend that answers in four seconds = %+v, want up", h)
		}
	})
}

func TestSuspendedProcessReportsNoHang(t *testing.T) {
	now := time.Now()
	s := newHangDetector(func() transport.Silence { return transport.Silence{Since: now.Add(-time.Second)} }, 0)
	s.started, s.lastCheck = now, now
	for _, at := range []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second} { // a standstill between any two checks
		if f := s.check(now.Add(at)); f != nil {
			t.Fatalf("failure after a standstill of %v = %+v, want none", at, f)
		}
	}
	at := now.Add(30 * time.Second)
	for range int(hungTimeout / hangCheckInterval) {
		at = at.Add(hangCheckInterval)
		if s.check(at) != nil {
			return
		}
	}
	t.Errorf("no failure within %v of silence, want one", hungTimeout)
}

func TestHungBackendIsUnavailableWhileClientsWait(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	h := open(t, nil, connected)
	b := h.serve("server")
	h.add(external("server"))
	h.add(h.remote("example.com", "v1", "server", b.port()))
	h.is("v1.example.com", "True", "Passed")
	release := make(chan struct{})
	b.answer(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	r, _ := h.Table().Lookup(gvExample)
	done := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://ignored/apis/example.com/v1/widgets", nil)
		if err == nil {
			_, err = r.Backend.RoundTrip(req)
		}
		done <- err
	}()
	h.is("v1.example.com", "False", "FailedDiscoveryCheck") // within ten seconds; probes alone would need forty
	if err := <-done; !errors.Is(err, transport.ErrUnresponsive) {
		t.Errorf("error of the request that waited = %v, want %v", err, transport.ErrUnresponsive)
	}
	close(release)
	h.is("v1.example.com", "True", "Passed")
}

func TestHangMessageNamesLimit(t *testing.T) {
	for usual, want := range map[time.Duration]string{
		0:                       "requests are taken and none is answered within 3.5s",
		2600 * time.Millisecond: "requests are taken and none is answered within 5s",
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			h := newHangDetector(func() transport.Silence { return transport.Silence{Since: began} }, usual)
			var f *failure
			for f == nil && time.Since(began) < time.Minute {
				time.Sleep(hangCheckInterval)
				f = h.check(time.Now())
			}
			if f == nil || f.message != want {
				t.Errorf("failure = %+v, want %q", f, want)
			}
		})
	}
}
