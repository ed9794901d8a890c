package transport

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestSilenceIsReportedOnceWhileRequestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Int64
		s := &silence{overdue: func() { told.Add(1) }}
		expect := func(want int64, what string) {
			t.Helper()
			synctest.Wait()
			if n := told.Load(); n != want {
				t.Errorf("%s: %d reports of silence, want %d", what, n, want)
			}
		}
		for range 100 { // answered in time
			s.requestSent(time.Now())
			time.Sleep(100 * time.Millisecond)
			s.responseReceived()
		}
		time.Sleep(time.Minute)
		expect(0, "every request was answered")

		s.requestSent(time.Now())
		time.Sleep(overdueAfter / 2)
		s.responseReceived()
		s.requestSent(time.Now()) // the pending check belongs to the first request
		time.Sleep(overdueAfter - time.Millisecond)
		expect(0, "the second request waits for less than its time")
		time.Sleep(time.Millisecond)
		expect(1, "the second request waits")
		for range 100 {
			s.requestSent(time.Now())
			time.Sleep(100 * time.Millisecond)
		}
		expect(1, "more requests in the same silence")
		s.responseReceived()
		s.requestSent(time.Now())
		time.Sleep(overdueAfter)
		expect(2, "another silence")
	})
}

func TestUnresponsiveBackendIsReported(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for name, givesUp := range map[string]bool{"a client waits": false, "a client gave up": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			asked, release := make(chan error, 8), make(chan struct{})
			s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodDelete {
					asked <- nil
				}
				select {
				case <-release:
				case <-r.Context().Done():
				}
			}))
			var overdue atomic.Int64
			b := w.backend(w.set(func(o *Options) {
				o.OnFailure = func(_ *Backend, err error) {
					if errors.Is(err, errOverdue) {
						overdue.Add(1)
					}
				}
			}), s.address)
			ctx := &lateDeadline{Context: t.Context(), done: make(chan struct{})} // the deadline passes after the backend has received the request
			done := make(chan error, 1)
			go func() {
				r, _ := http.NewRequestWithContext(ctx, http.MethodDelete, "https://ignored/", nil)
				resp, err := b.RoundTrip(r)
				if err == nil {
					err = resp.Body.Close()
				}
				done <- err
			}()
			_ = within(t, time.Minute, asked, "the request reaches the backend")
			if givesUp {
				ctx.end()
			} else {
				defer ctx.end()
			}
			eventually(t, time.Minute, "the silence is told", func() bool { return overdue.Load() == 1 })
			if said := b.Silence(); said.Since.IsZero() || said.Broken {
				t.Errorf("silence of a backend that answers pings = %+v, want a silence that is not broken", said)
			}
			close(release)
			if err := <-done; (err != nil) != givesUp {
				t.Errorf("error of the request = %v, want an error if the client gave up (%t)", err, givesUp)
			}
			if _, err := get(t, b.Probe()); err != nil {
				t.Fatal(err)
			}
			if said := b.Silence(); !said.Since.IsZero() {
				t.Errorf("silence after a response = %+v, want none", said)
			}
		})
	}
}

func TestResponseEndsSilence(t *testing.T) {
	w := newTestEnv(t)
	next := make(chan string)
	s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			panic(http.ErrAbortHandler)
		}
		for line := range next {
			_, _ = rw.Write([]byte(line))
			_ = http.NewResponseController(rw).Flush()
		}
	}))
	b := w.backend(w.set(), s.address)
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://ignored/", nil)
	silent := func() bool { return !b.Silence().Since.IsZero() }
	go func() { next <- "first" }()
	watch, err := b.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = watch.Body.Close() }()
	defer close(next)
	buffer := make([]byte, 100)
	if _, err := watch.Body.Read(buffer); err != nil {
		t.Fatal(err)
	}

	b.silence.requestSent(time.Now())
	next <- "an event of a watch"
	if _, err := watch.Body.Read(buffer); err != nil || silent() {
		t.Errorf("read of a watch event: error %v, want no error and no silence", err)
	}
	if _, err := do(t, b, http.MethodDelete, nil); err == nil || silent() {
		t.Errorf("DELETE with a reset stream: error %v, want an error and no silence", err)
	}
}

func TestSilentConnectionFailsItsRequests(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	w := newTestEnv(t)
	s := w.serve(text("ok"))
	l := w.link(s.address)
	b := w.backend(w.set(), l.address)
	if _, err := get(t, b); err != nil {
		t.Fatal(err)
	}
	l.cut.Store(true)
	start := time.Now()
	if _, err := do(t, b, "DELETE", nil); !noResponse(err) {
		t.Errorf("DELETE over a silent connection error = %v, want an error without a response", err)
	}
	if took := time.Since(start); took > time.Minute {
		t.Errorf("time until the error = %s, want at most a minute", took)
	}
	if said := b.Silence(); said.Since.IsZero() || !said.Broken {
		t.Errorf("silence of the backend = %+v, want a broken connection", said)
	}
	l.cut.Store(false)
	eventually(t, time.Minute, "it answers again", func() bool { _, err := get(t, b); return err == nil })
	if said := b.Silence(); !said.Since.IsZero() {
		t.Errorf("silence after a response = %+v, want none", said)
	}
}

// HTTP/1.1 has no pings. A probe distinguishes a slow server from an unreachable one, because it opens a new connection.
func TestProbeDistinguishesSilentHTTP1ServerFromSlow(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for name, cut := range map[string]bool{"its network is cut": true, "it is slow": false} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv(t)
			release := make(chan struct{})
			s := w.serveProto(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					select {
					case <-release:
					case <-r.Context().Done():
					}
				}
			}), "http/1.1")
			k := w.link(s.address)
			b := w.backend(w.set(), k.address)
			for _, rt := range []http.RoundTripper{b, b.Probe()} { // leaves an idle connection in both pools
				if _, err := get(t, rt); err != nil {
					t.Fatal(err)
				}
			}
			k.cut.Store(cut)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://ignored/slow", nil)
			waiting := make(chan error, 1)
			go func() {
				resp, err := b.RoundTrip(r)
				if err == nil {
					_ = resp.Body.Close()
				}
				waiting <- err
			}()
			eventually(t, time.Minute, "a request waits", func() bool { return !b.Silence().Since.IsZero() })
			probed := inBackground(ctx, b.Probe(), http.MethodGet, nil)
			if cut {
				eventually(t, time.Minute, "the silence is that of its connections", func() bool { return b.Silence().Broken })
			} else if err := within(t, time.Minute, probed, "a probe"); err != nil || b.Silence().Broken {
				t.Errorf("probe of a slow server: error %v, silence %+v, want no error and not broken", err, b.Silence())
			}
			close(release)
			cancel()
			<-waiting
		})
	}
}
