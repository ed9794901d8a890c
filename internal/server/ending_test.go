package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"

	"portico.dev/internal/dispatch/dispatchtest"
	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/metrics"
	"portico.dev/internal/routes/sharedwatch"
	"portico.dev/internal/transport"
)

// endedWatch is a watch of a client that is about to end.
type endedWatch struct {
	bench   *bench
	backend *watchedBackend
	metrics *prometheus.Registry
	leave   context.CancelFunc
}

// panicsAt is a writer that panics when a certain text is written.
type panicsAt struct {
	http.ResponseWriter
	text string
}

func (w panicsAt) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w panicsAt) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.text) {
		panic("canary")
	}
	return w.ResponseWriter.Write(p)
}

// sample is the sum of the values of a metric, with the labels that a text contains.
func (e *endedWatch) sample(t *testing.T, name, label string) (sum float64) {
	t.Helper()
	families, err := e.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name && strings.Contains(m.String(), label) {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// The filters process the end of a watch of an extension server once, however the watch ends. They do so when the response ends. Over HTTP/2, this is
// long after the handler returned.
func TestWatchEndIsProcessedOnceWhenResponseEnds(t *testing.T) {
	t.Parallel()
	set := transport.New(transport.Options{Engine: enginetest.Backend(t)})
	t.Cleanup(set.Close)
	const path = "/apis/example.com/v1/namespaces/a/widgets?watch=true&resourceVersion=5"
	for name, c := range map[string]struct {
		query  string
		end    func(*testing.T, *endedWatch)
		reason string // for the metric; empty: no end is counted
		last   string // part of the last line that the client receives
		broken bool   // the client does not receive the end of the response
		stage  auditinternal.Stage
		alone  bool // the watch is not shared
	}{
		"its client leaves":  {end: func(_ *testing.T, e *endedWatch) { e.leave() }, reason: metrics.WatchClientLeft, broken: true, stage: auditinternal.StageResponseComplete},
		"the server drains":  {end: func(_ *testing.T, e *endedWatch) { e.bench.config.Drainer.EndLongRunning() }, reason: metrics.WatchClientLeft, last: "w6", stage: auditinternal.StageResponseComplete},
		"its time is over":   {query: "&timeoutSeconds=5", end: func(*testing.T, *endedWatch) {}, reason: metrics.WatchTimeout, last: "w6", stage: auditinternal.StageResponseComplete},
		"its events are old": {end: func(t *testing.T, e *endedWatch) { e.fall(t) }, reason: metrics.WatchSlow, last: `"code":410`, stage: auditinternal.StageResponseComplete},
		"the extension server ends it": {end: func(_ *testing.T, e *endedWatch) {
			e.backend.sendLine(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410,"reason":"Expired","message":"too old"}}`)
		}, reason: metrics.WatchExpired, last: `"code":410`, stage: auditinternal.StageResponseComplete},
		"it panics": {end: func(_ *testing.T, e *endedWatch) { e.backend.send(666) }, broken: true, stage: auditinternal.StagePanic},

		"the client of its own leaves":            {alone: true, end: func(_ *testing.T, e *endedWatch) { e.leave() }, broken: true, stage: auditinternal.StageResponseComplete},
		"the server drains, and it is not shared": {alone: true, end: func(_ *testing.T, e *endedWatch) { e.bench.config.Drainer.EndLongRunning() }, last: "w6", stage: auditinternal.StageResponseComplete},
		"its own ends":       {alone: true, end: func(_ *testing.T, e *endedWatch) { e.backend.sendLine("end") }, last: "w6", stage: auditinternal.StageResponseComplete},
		"its own breaks off": {alone: true, end: func(_ *testing.T, e *endedWatch) { e.backend.sendLine("abort") }, broken: true, stage: auditinternal.StageResponseComplete},
	} {
		for protocol, h2 := range map[string]bool{"HTTP/2": true, "HTTP/1.1": false} {
			t.Run(name+", "+protocol, func(t *testing.T) {
				if c.query != "" {
					t.Parallel() // it waits for most of the time
				}
				e := &endedWatch{backend: &watchedBackend{}, metrics: prometheus.NewRegistry()}
				router := routerOf(dispatchtest.Table(t, set, sharingWatches, map[string]http.Handler{"first": e.backend}))
				if shared := metrics.NewSharedWatches(e.metrics); !c.alone {
					router.SharedWatches = runSharedWatches(t, sharedwatch.Config{MaxFrames: 4, Metrics: shared})
				}
				core, lines := observer.New(zap.InfoLevel)
				b := newBench("alice watch widgets")
				b.memory = true
				e.bench, b.config.Metrics, b.config.AccessLog = b, metrics.NewRequests(e.metrics), zap.New(core)
				b.handler = router.build().ServeHTTP
				if c.stage == auditinternal.StagePanic {
					b.handler = func(w http.ResponseWriter, r *http.Request) { router.build().ServeHTTP(panicsAt{w, "w666"}, r) }
				}
				l := b.listen(t, 10*time.Second)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				e.leave = cancel
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+l.address+path+c.query, nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Test-User", "alice")
				client := l.client(t, h2)
				client.Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}
				res, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				body := bufio.NewReader(res.Body)
				eventually(t, "the backend is watched", func() bool { users, _ := e.backend.seen(); return len(users) == 1 })
				e.backend.send(6)
				last, err := body.ReadString('\n')
				if err != nil || !strings.Contains(last, "w6") {
					t.Fatalf("first line of the watch = %q with the error %v, want the event w6", last, err)
				}
				read := len(last)
				if got := b.stages(); !slices.Equal(got, []auditinternal.Stage{auditinternal.StageResponseStarted}) || lines.Len() != 0 ||
					e.sample(t, "apiserver_longrunning_requests", "WATCH") != 1 || !b.config.Drainer.busy() {
					t.Fatalf("running watch has the audit stages %v, %d lines in the log and %g long-running requests, want [ResponseStarted], 0 and 1", got, lines.Len(), e.sample(t, "apiserver_longrunning_requests", ""))
				}
				c.end(t, e)
				for err == nil {
					var line string
					if line, err = body.ReadString('\n'); line != "" {
						last = line
						read += len(line)
					}
				}
				if broken := err != io.EOF; broken != c.broken || !c.broken && !strings.Contains(last, c.last) {
					t.Errorf("end of the response = %q with the error %v, want a line that contains %q, broken off %t", last, err, c.last, c.broken)
				}
				eventually(t, "the request is over", func() bool { return !b.config.Drainer.busy() })
				eventually(t, "it is logged", func() bool { return lines.Len() > 0 })
				if got := b.stages(); !slices.Equal(got, []auditinternal.Stage{auditinternal.StageResponseStarted, c.stage}) {
					t.Errorf("audit stages after the watch = %v, want ResponseStarted and %s", got, c.stage)
				}
				if lines.Len() != 1 {
					t.Fatalf("%d lines in the access log after the watch, want 1", lines.Len())
				}
				fields := zapcore.NewMapObjectEncoder()
				for _, f := range lines.All()[0].Context {
					f.AddTo(fields)
				}
				if f := fields.Fields; f["code"] != 200 || f["bytes"] != int64(read) || f["served-by"] != "v1.example.com/first" || f["took"].(time.Duration) <= 0 {
					t.Errorf("line in the access log = %v, want code 200, %d bytes, served-by v1.example.com/first and a positive time", f, read)
				}
				// A filter outside the access log runs its code after it.
				for metric, want := range map[string]float64{
					"apiserver_longrunning_requests": 0, "apiserver_request_total": 1, "portico_shared_watch_clients": 0,
				} {
					eventually(t, fmt.Sprintf("%s is %g", metric, want), func() bool { return e.sample(t, metric, "") == want })
				}
				panics := 0.0
				if c.stage == auditinternal.StagePanic {
					panics = 1
				}
				eventually(t, fmt.Sprintf("%g panics are counted", panics), func() bool { return testutil.ToFloat64(b.config.Metrics.Panics) == panics })
				if c.reason != "" {
					eventually(t, "the reason is counted", func() bool { return e.sample(t, "portico_shared_watch_ended_total", c.reason) == 1 })
				}
			})
		}
	}
}

// fall sends more than the server buffers for a client that does not read, until the server has read everything or has given up the client.
func (e *endedWatch) fall(t *testing.T) {
	const events = 50
	before := e.sample(t, "portico_shared_watch_events_total", "")
	for i := range events {
		e.backend.sendLarge(7+i, 64<<10)
	}
	eventually(t, "the front door has all events, or has given the client up", func() bool {
		return e.sample(t, "portico_shared_watch_events_total", "") == before+events ||
			e.sample(t, "portico_shared_watch_ended_total", metrics.WatchSlow) == 1
	})
}

// stages returns the stages of the audit events so far.
func (b *bench) stages() (all []auditinternal.Stage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		all = append(all, e.Stage)
	}
	return all
}
