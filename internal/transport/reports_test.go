package transport

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

func TestSuccessIsReportedOncePerSecond(t *testing.T) {
	w := newTestEnv(t)
	s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusTeapot) }))
	var told atomic.Int64
	b := w.backend(w.set(func(o *Options) { o.OnSuccess = func(*Backend) { told.Add(1) } }), s.address)
	start := time.Now()
	for range 200 {
		if _, err := get(t, b); err != nil {
			t.Fatal(err)
		}
	}
	n, most := told.Load(), 1+int64(time.Since(start)/successInterval)
	if n < 1 || n > most {
		t.Errorf("200 responses were reported %d times, want 1 to %d", n, most)
	}
}

func TestProbesAndFailuresAreNotReportedAsSuccess(t *testing.T) {
	w := newTestEnv(t)
	s := w.serve(text("ok"))
	var told atomic.Int64
	count := func(o *Options) { o.OnSuccess = func(*Backend) { told.Add(1) } }
	if _, err := get(t, w.backend(w.set(count), s.address).Probe()); err != nil {
		t.Fatal(err)
	}
	if _, err := get(t, w.backend(w.set(count), w.deadAddress())); err == nil {
		t.Fatal("GET from a dead address succeeded, want an error")
	}
	if n := told.Load(); n != 0 {
		t.Errorf("%d reported successes of a probe and a failure, want 0", n)
	}
}

func TestIdleBackendStopIsReported(t *testing.T) {
	w := newTestEnv(t)
	s := w.serve(text("ok"))
	var told atomic.Int64
	b := w.backend(w.set(func(o *Options) { o.OnFailure = func(*Backend, error) { told.Add(1) } }), s.address)
	if _, err := get(t, b.Probe()); err != nil {
		t.Fatal(err)
	}
	s.kill()
	eventually(t, time.Minute, "the lost connection is reported", func() bool { return told.Load() == 1 })
}

func TestIdleBackendSilenceIsReported(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	w := newTestEnv(t)
	s := w.serve(text("ok"))
	l := w.link(s.address)
	told := make(chan struct{}, 1)
	b := w.backend(w.set(func(o *Options) {
		o.OnFailure = func(*Backend, error) {
			select {
			case told <- struct{}{}:
			default:
			}
		}
	}), l.address)
	if _, err := get(t, b.Probe()); err != nil {
		t.Fatal(err)
	}
	l.cut.Store(true)
	select {
	case <-told:
	case <-time.After(30 * time.Second):
		t.Fatal("no failure was reported within 30 seconds, want one for the silent backend")
	}
}

func TestServerClosingEveryConnectionIsReportedOnce(t *testing.T) {
	w := newTestEnv(t)
	s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.Header().Set("Connection", "close") }))
	var told atomic.Int64
	b := w.backend(w.set(func(o *Options) { o.OnFailure = func(*Backend, error) { told.Add(1) } }), s.address)
	for range 5 {
		if _, err := get(t, b.Probe()); err != nil {
			t.Fatal(err)
		}
		eventually(t, time.Minute, "the connection is closed", func() bool { return s.openConns() == 0 })
	}
	if n := told.Load(); n > 1 {
		t.Errorf("%d reported failures of a server that closes every connection, want at most 1", n)
	}
}

func TestLocallyClosedConnectionIsNotReported(t *testing.T) {
	w := newTestEnv(t)
	s := w.serve(text("ok"))
	var told atomic.Int64
	tell := func(o *Options) { o.OnFailure = func(*Backend, error) { told.Add(1) } }
	idles := w.set(tell, func(o *Options) { o.IdleTimeout = 100 * time.Millisecond })
	leaves := w.set(tell)
	for _, set := range []*Set{idles, leaves} {
		if _, err := get(t, w.backend(set, s.address).Probe()); err != nil {
			t.Fatal(err)
		}
	}
	leaves.Retain(nil)
	eventually(t, time.Minute, "the connections are closed", func() bool { return s.openConns() == 0 })
	if n := told.Load(); n != 0 {
		t.Errorf("%d reported failures of connections that Portico closed, want 0", n)
	}
}
