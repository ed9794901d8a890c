package watchlist

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/metrics"
)

// fakeServer is an extension server with a replaceable answer to watches.
type fakeServer struct {
	name    string // shop/widgets:443 unless set
	mu      sync.Mutex
	code    int    // 200 unless set
	body    string // then silence
	started int
	running int
	most    int // concurrent requests
}

func (f *fakeServer) Name() string             { return cmp.Or(f.name, "shop/widgets:443") }
func (f *fakeServer) Probe() http.RoundTripper { return f }
func (f *fakeServer) RenewProbes()             {}

func (f *fakeServer) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	code, body := f.code, f.body
	f.started++
	f.running++
	f.most = max(f.most, f.running)
	f.mu.Unlock()
	if code != 0 {
		return &http.Response{StatusCode: code, Body: &fakeBody{io.NopCloser(strings.NewReader(body)), f}}, nil
	}
	resp, err := silent{body: body}.RoundTrip(r)
	if err == nil {
		resp.Body = &fakeBody{resp.Body, f}
	}
	return resp, err
}

// fakeBody ends its request when it is closed.
type fakeBody struct {
	io.ReadCloser
	server *fakeServer
}

func (b *fakeBody) Close() error {
	b.server.mu.Lock()
	b.server.running--
	b.server.mu.Unlock()
	return b.ReadCloser.Close()
}

func (f *fakeServer) become(code int, body string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.code, f.body = code, body
}

func (f *fakeServer) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.started
}

// bench is a running Prober over routes that change.
type bench struct {
	*Prober
	server  *fakeServer
	metrics *metrics.Discovery

	mu      sync.Mutex
	routes  []Route
	changed chan struct{}
}

// inBench runs test with a Prober, in the fake time of a bubble.
func inBench(t *testing.T, test func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{server: &fakeServer{}, changed: make(chan struct{}), metrics: metrics.NewDiscovery(prometheus.NewRegistry())}
		b.Prober = NewProber(Config{
			Routes:        func() []Route { b.mu.Lock(); defer b.mu.Unlock(); return b.routes },
			RoutesChanged: func() <-chan struct{} { b.mu.Lock(); defer b.mu.Unlock(); return b.changed }, DocumentsChanged: func() <-chan struct{} { return nil },
			Metrics: b.metrics, Logger: zap.NewNop(),
		})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = b.Run(ctx) })
		test(t, b)
		cancel()
		wg.Wait()
	})
}

func (b *bench) route(available bool, resources ...string) Route {
	return Route{Route: remote.Route{GroupVersion: widgets.GroupVersion(), APIService: "v1.shop.example.com", UID: "1", Backend: b.server, Available: available}, Resources: resources}
}

// set replaces the routes and waits until they are applied and all goroutines are blocked.
func (b *bench) set(routes ...Route) {
	b.mu.Lock()
	b.routes = routes
	close(b.changed)
	b.changed = make(chan struct{})
	b.mu.Unlock()
	time.Sleep(minFollow)
	synctest.Wait()
}

// after lets time pass.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (b *bench) expect(t *testing.T, when string, verdict Verdict, rejects bool, probes int) {
	t.Helper()
	states := b.States()
	if len(states) != 1 || states[0].Verdict != verdict.String() || b.Rejects(widgets) != rejects || b.server.count() != probes {
		t.Errorf("%s: states = %+v, rejects %t, %d probes, want %s, %t, %d", when, states, b.Rejects(widgets), b.server.count(), verdict, rejects, probes)
	}
}

func TestInitialEventsAreRejectedForIgnoringServer(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		if !b.Rejects(widgets) {
			t.Error("Rejects() of an unknown resource = false, want true")
		}
		b.set(b.route(false, "widgets"))
		b.expect(t, "not available", Unprobed, true, 0) // a client that requests it has newer information: it has just become available
		after(time.Hour)
		b.expect(t, "not available for long", Unprobed, true, 0)
		b.set(b.route(true, "widgets"))
		b.expect(t, "the probe is under way", Unprobed, true, 1)
		after(probeTimeout)
		b.expect(t, "probed", Ignores, true, 1)
		if n := testutil.ToFloat64(b.metrics.InitialEvents.WithLabelValues("ignores")); n != 1 {
			t.Errorf("gauge of ignores = %v, want 1", n)
		}
		after(interval + probeTimeout)
		b.expect(t, "probed again", Ignores, true, 2)
		b.server.become(200, bookmark)
		after(interval)
		b.expect(t, "upgraded", Honours, false, 3)
		b.set()
		if len(b.States()) != 0 {
			t.Errorf("states after the deletion = %+v, want none", b.States())
		}
		after(time.Hour)
		if b.server.count() != 3 {
			t.Errorf("%d probes after the deletion, want 3 as before", b.server.count())
		}
	})
}

func TestInitialEventsAreRejectedAfterServerStopsHonouring(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.server.become(200, bookmark)
		b.set(b.route(true, "widgets"))
		b.expect(t, "probed", Honours, false, 1)
		b.server.become(0, "")
		b.probeSoon(b.server)
		after(newsGap + probeTimeout)
		b.expect(t, "after one probe", Honours, false, 2)
		b.server.become(200, bookmark)
		after(confirmAfter)
		b.expect(t, "it was slow once", Honours, false, 3)
		b.server.become(0, "")
		b.probeSoon(b.server)
		after(newsGap + probeTimeout + confirmAfter + probeTimeout)
		b.expect(t, "after two in a row", Ignores, true, 5)
	})
}

func TestIgnoringVerdictSurvivesOutage(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.server.become(200, added)
		b.set(b.route(true, "widgets"))
		b.expect(t, "probed", Ignores, true, 1)
		b.set(b.route(false, "widgets"))
		after(time.Hour)
		b.expect(t, "gone", Ignores, true, 1)
		b.server.become(503, "")
		b.set(b.route(true, "widgets"))
		after(availableGap) // the task can have run a moment before, with nothing to probe
		b.expect(t, "back, and probed, and answers 503", Ignores, true, 2)
	})
}

// The server that returns after an outage can be a different program.
func TestHonouringServerIsProbedAgainAfterOutage(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.server.become(200, bookmark)
		b.set(b.route(true, "widgets"))
		b.expect(t, "probed", Honours, false, 1)
		b.set(b.route(false, "widgets"))
		after(time.Hour)
		b.expect(t, "gone", Unprobed, true, 1)
		b.server.become(200, added)
		b.set(b.route(true, "widgets"))
		after(probeTimeout)
		b.expect(t, "another program", Ignores, true, 2)
		b.server.become(200, bookmark)
		after(confirmAfter)
		b.expect(t, "it was slow after its start", Honours, false, 3)
	})
}

// A probe without a verdict is repeated at increasing intervals.
func TestUndeterminedProbeIsRepeatedWithBackoff(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.server.become(403, "")
		b.set(b.route(true, "widgets"))
		b.expect(t, "probed", Undetermined, false, 1)
		after(firstRetry)
		b.expect(t, "after the first pause", Undetermined, false, 2)
		after(2 * firstRetry)
		b.expect(t, "after the second pause", Undetermined, false, 3)
		before := b.server.count()
		after(10 * interval)
		if n := b.server.count() - before; n < 9 || n > 19 {
			t.Errorf("%d probes in %s, want 9 to 19", n, 10*interval)
		}
		b.server.become(422, "")
		after(interval)
		if s := b.States(); s[0].Verdict != "refuses" || b.Rejects(widgets) {
			t.Errorf("states = %+v, want refuses and no rejection", s)
		}
	})
}

// A different server, or a new APIService of the same name, starts without a verdict.
func TestReplacedServerStartsWithoutVerdict(t *testing.T) {
	for change, apply := range map[string]func(r *Route){
		"another Service":       func(r *Route) { r.Revision = "other" },
		"created again":         func(r *Route) { r.UID = "2" },
		"another set of trust":  func(r *Route) { r.Backend = &fakeServer{code: 500} },
		"a server without news": nil,
	} {
		t.Run(change, func(t *testing.T) {
			inBench(t, func(t *testing.T, b *bench) {
				b.server.become(200, bookmark)
				r := b.route(true, "widgets")
				b.set(r)
				b.server.become(0, "")
				if apply == nil {
					b.set(r)
					b.expect(t, "the same", Honours, false, 1)
					return
				}
				apply(&r)
				b.set(r)
				if !b.Rejects(widgets) || b.States()[0].Verdict != "unprobed" {
					t.Errorf("states before the probe = %+v, want unprobed and a rejection", b.States())
				}
				r.Backend.(*fakeServer).become(200, bookmark)
				after(availableGap)
				if b.Rejects(widgets) {
					t.Errorf("states after the probe = %+v, want no rejection", b.States())
				}
			})
		})
	}
}

func TestConcurrentProbesPerBackendAreLimited(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		var names []string
		for i := range 40 {
			names = append(names, fmt.Sprintf("things%02d", i))
		}
		b.set(b.route(true, names...))
		after(firstVerdictTime + time.Second)
		if b.server.most != maxBackendProbes || b.server.count() < 40 {
			t.Errorf("%d probes, %d at once, want at least 40, %d at once", b.server.count(), b.server.most, maxBackendProbes)
		}
		for i, s := range b.States() {
			if s.Verdict != "ignores" || !strings.HasPrefix(s.Resource, names[i]+".v1.shop.example.com") {
				t.Errorf("state = %+v, want ignores for %s", s, names[i])
			}
		}
	})
}

// Probes of one silent server once used all slots.
func TestA53SlowServerDoesNotDelayOtherProbes(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		var names []string
		for i := range 40 {
			names = append(names, fmt.Sprintf("things%02d", i))
		}
		slow := b.route(true, names...)
		b.set(slow)
		after(availableGap)
		healthy := b.route(true, "widgets")
		healthy.GroupVersion.Group, healthy.APIService = "other.example.com", "v1.other.example.com"
		healthy.Backend = &fakeServer{name: "other/server:443", code: 200, body: bookmark}
		b.set(slow, healthy)
		after(availableGap + probeTimeout)
		if of := healthy.GroupVersion.WithResource("widgets"); b.Rejects(of) {
			t.Errorf("Rejects(%s) of a healthy server = true while another server is slow, want a probe and false", of)
		}
	})
}

// A resource that discovery does not contain yet counts as not probed yet, for a while.
func TestUnknownResourceIsTreatedAsUnprobedBriefly(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.set(b.route(false))
		if !b.Rejects(widgets) {
			t.Error("Rejects() of a resource of an unavailable server = false, want true")
		}
		b.set(b.route(true))
		if !b.Rejects(widgets) || !b.Rejects(schema.GroupVersionResource{Group: "other.example.com", Version: "v1", Resource: "x"}) {
			t.Error("Rejects() of resources without a probe = false, want true")
		}
		after(firstVerdictTime)
		if b.Rejects(widgets) {
			t.Errorf("Rejects() after %s without a probe = true, want false", firstVerdictTime)
		}
	})
}

func TestLookupDoesNotAllocate(t *testing.T) {
	p := NewProber(Config{Metrics: metrics.NewDiscovery(prometheus.NewRegistry()), Logger: zap.NewNop()})
	p.follow([]Route{{Route: remote.Route{GroupVersion: widgets.GroupVersion(), Available: true, Backend: &fakeServer{}}, Resources: []string{"widgets"}}})
	for _, of := range []schema.GroupVersionResource{widgets, {Group: "other.example.com"}} {
		if n := testing.AllocsPerRun(100, func() { p.Rejects(of) }); n != 0 {
			t.Errorf("Rejects(%s) makes %v allocations, want 0", of, n)
		}
	}
}
