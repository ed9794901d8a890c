package apiservice

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// laneTo is a lane to one server, whatever host is asked for.
type laneTo struct {
	http.RoundTripper
	host string
}

func (l laneTo) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = l.host
	return l.RoundTripper.RoundTrip(r)
}

func serve(t *testing.T, h http.HandlerFunc) laneTo {
	t.Helper()
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	return laneTo{server.Client().Transport, strings.TrimPrefix(server.URL, "https://")}
}

func TestProbeIsTheIncumbentsRequest(t *testing.T) {
	got := make(chan *http.Request, 1)
	lane := serve(t, func(w http.ResponseWriter, r *http.Request) { got <- r })
	o := newProber().ask(t.Context(), target{lane: lane, url: "https://server.metrics.svc:443/apis/metrics.k8s.io/v1", endpoints: 1})
	if o.failure != nil {
		t.Fatal(o.failure.message("it"))
	}
	r := <-got
	if r.Method != http.MethodGet || r.URL.RequestURI() != "/apis/metrics.k8s.io/v1" {
		t.Errorf("got %s %s", r.Method, r.URL.RequestURI())
	}
	if strings.Join(r.Header["X-Remote-User"], "|") != "system:kube-aggregator" || strings.Join(r.Header["X-Remote-Group"], "|") != "system:masters" {
		t.Errorf("identity is %v", r.Header)
	}
	if r.Header.Get("Authorization") != "" || r.Header.Get("Accept") != "" {
		t.Errorf("headers that the incumbent does not send: %v", r.Header)
	}
	if o.certificateExpires.IsZero() || o.at.IsZero() {
		t.Errorf("the outcome is incomplete: %+v", o)
	}
}

func TestDiscoveryPath(t *testing.T) {
	if got := discoveryPath(schema.GroupVersion{Version: "v1"}); got != "/api/v1" {
		t.Errorf("legacy group: got %s", got)
	}
	if got := discoveryPath(schema.GroupVersion{Group: "a.io", Version: "v2"}); got != "/apis/a.io/v2" {
		t.Errorf("got %s", got)
	}
}

func TestProbeJudgesByTheStatusAlone(t *testing.T) {
	for status, passes := range map[int]bool{200: true, 204: true, 299: true, 301: false, 304: false, 400: false, 401: false, 403: false, 404: false, 500: false, 503: false} {
		var asked atomic.Int64
		lane := serve(t, func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
		})
		o := newProber().ask(t.Context(), target{lane: lane, url: "https://x/apis/a/v1", endpoints: 1})
		if (o.failure == nil) != passes {
			t.Errorf("status %d: failure is %+v", status, o.failure)
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("status %d: the only endpoint was asked %d times, or a redirect was followed", status, n)
		}
	}
}

func TestProbeReadsLittleAndLeavesTheConnectionUsable(t *testing.T) {
	connections := make(chan string, 3)
	lane := serve(t, func(w http.ResponseWriter, r *http.Request) {
		connections <- r.RemoteAddr
		_, _ = io.WriteString(w, strings.Repeat("x", 64<<10))
	})
	for range 3 {
		if o := newProber().ask(t.Context(), target{lane: lane, url: "https://x/apis/a/v1", endpoints: 1}); o.failure != nil {
			t.Fatal(o.failure)
		}
	}
	if a, b, c := <-connections, <-connections, <-connections; a != b || b != c {
		t.Errorf("three probes took connections %s, %s and %s", a, b, c)
	}
}

func TestProbeDoesNotWaitForABodyThatNeverEnds(t *testing.T) {
	release := make(chan struct{})
	lane := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	start := time.Now()
	o := newProber().ask(t.Context(), target{lane: lane, url: "https://x/apis/a/v1", endpoints: 1})
	if o.failure != nil || time.Since(start) > probeTimeout/2 {
		t.Errorf("failure %+v after %v", o.failure, time.Since(start))
	}
}

// script is a lane whose answers are given: one function for each request, the last for all that follow.
type script struct {
	answers chan func(ctx context.Context) (int, error)
	asked   chan time.Time
}

func newScript() *script {
	return &script{make(chan func(context.Context) (int, error), 100), make(chan time.Time, 10_000)}
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.asked <- time.Now()
	answer := <-s.answers
	if len(s.answers) == 0 {
		s.answers <- answer
	}
	code, err := answer(r.Context())
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: code, Body: http.NoBody}, nil
}

func hang(ctx context.Context) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

func status(code int) func(context.Context) (int, error) {
	return func(context.Context) (int, error) { return code, nil }
}

func TestProbeAsksAnotherEndpointWhenOneIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lane := newScript()
		lane.answers <- hang
		lane.answers <- status(200)
		start := time.Now()
		o := newProber().ask(t.Context(), target{lane: lane, url: "https://x/apis/a/v1", endpoints: 2})
		if o.failure != nil || time.Since(start) != hedgeDelay {
			t.Errorf("failure %+v after %v", o.failure, time.Since(start))
		}
	})
}

func TestProbeAsksEachEndpointBeforeItGivesUp(t *testing.T) {
	for endpoints, attempts := range map[int]int{1: 1, 2: 2, 3: 3, 50: maxAttempts} {
		synctest.Test(t, func(t *testing.T) {
			lane := newScript()
			lane.answers <- status(500)
			o := newProber().ask(t.Context(), target{lane: lane, url: "https://x/apis/a/v1", endpoints: endpoints})
			if o.failure == nil || len(lane.asked) != attempts {
				t.Errorf("%d endpoints: %d attempts, failure %+v", endpoints, len(lane.asked), o.failure)
			}
		})
	}
}

func TestProbeTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lane := newScript()
		lane.answers <- hang
		start := time.Now()
		o := newProber().ask(t.Context(), target{lane: lane, url: "https://x/apis/a/v1", endpoints: 1})
		if o.failure == nil || !o.failure.slow || time.Since(start) > probeTimeout+hedgeDelay {
			t.Errorf("failure %+v after %v", o.failure, time.Since(start))
		}
	})
}

func TestProbesUnderWayAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := newProber()
		lane := newScript()
		lane.answers <- hang
		done := make(chan outcome)
		for range 2 * maxProbes {
			go func() { done <- p.ask(ctx, target{lane: lane, url: "https://x/apis/a/v1", endpoints: 1}) }()
		}
		synctest.Wait()
		if len(lane.asked) != maxProbes {
			t.Errorf("%d probes at a time, the bound is %d", len(lane.asked), maxProbes)
		}
		cancel()
		for range 2 * maxProbes {
			<-done
		}
	})
}
