package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"portico.dev/internal/logging"
)

// A report contains the note of a check while the check passes.
func TestPassingHealthCheckReportsItsNote(t *testing.T) {
	var sick error
	note := "of noon, 1m old"
	h := NewHealth(zap.NewNop(), Check{Name: "state", Ask: func(context.Context) error { return sick }, Note: func() string { return note }})
	ask := func(target string) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		return w.Body.String()
	}
	if got := ask("/readyz?verbose"); !strings.Contains(got, "[+]state ok: of noon, 1m old\n") {
		t.Errorf("/readyz?verbose with a note = %q, want the note after [+]state ok", got)
	}
	if got := ask("/readyz"); got != "ok" {
		t.Errorf("/readyz = %q, want ok", got)
	}
	note = ""
	if got := ask("/readyz?verbose"); !strings.Contains(got, "[+]state ok\n") {
		t.Errorf("/readyz?verbose without a note = %q, want [+]state ok", got)
	}
	note, sick = "of noon", errors.New("too old")
	if got := ask("/readyz?verbose"); !strings.Contains(got, "[-]state failed: reason withheld\n") || strings.Contains(got, "noon") {
		t.Errorf("/readyz?verbose of a failing check = %q, want [-]state failed without the note", got)
	}
}

func TestHealth(t *testing.T) {
	sick := errors.New("secret address")
	h := NewHealth(zap.NewNop(),
		Check{Name: "goroutines", Live: true, Ask: func(context.Context) error { return nil }},
		Check{Name: "etcd", Ask: func(context.Context) error { return nil }},
		Check{Name: "discovery", Ask: func(context.Context) error { return sick }})
	for target, want := range map[string]struct {
		code int
		body string
	}{
		"/livez":                            {200, "ok"},
		"/livez?verbose":                    {200, "[+]ping ok\n[+]goroutines ok\nlivez check passed\n"},
		"/livez?exclude=etcd":               {200, "ok"},
		"/livez?verbose&exclude=etcd":       {200, "[+]goroutines ok\nwarn: some health checks cannot be excluded: no matches for \"etcd\"\nlivez check passed\n"},
		"/livez/goroutines":                 {200, "ok"},
		"/livez/etcd":                       {404, "Status"},
		"/readyz":                           {500, "[-]discovery failed: reason withheld\n"},
		"/readyz?verbose":                   {500, "readyz check failed\n"},
		"/readyz?exclude=discovery":         {200, "ok"},
		"/readyz?verbose&exclude=discovery": {200, "[+]discovery excluded: ok\n"},
		"/healthz":                          {500, "healthz check failed"},
		"/readyz/etcd":                      {200, "ok"},
		"/readyz/discovery":                 {500, "[-]discovery failed"},
		"/readyz/nothing":                   {404, "Status"},
		"/livez/discovery":                  {404, "Status"},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		if w.Code != want.code || !strings.Contains(w.Body.String(), want.body) {
			t.Errorf("GET %s = %d %q, want %d and a body that contains %q", target, w.Code, w.Body, want.code, want.body)
		}
		if strings.Contains(w.Body.String(), "secret") {
			t.Errorf("GET %s = %q, want the reason of the failure withheld", target, w.Body)
		}
	}
	sick = nil
	h.Stopping()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz?verbose", nil))
	if w.Code != 500 || !strings.Contains(w.Body.String(), "[-]shutdown") {
		t.Errorf("GET /readyz?verbose while stopping = %d %q, want 500 with [-]shutdown", w.Code, w.Body)
	}
	if w = httptest.NewRecorder(); true {
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/livez", nil))
	}
	if w.Code != 200 {
		t.Errorf("GET /livez while stopping = %d, want 200", w.Code)
	}
}

func TestHealthOfBackends(t *testing.T) {
	unreached := errors.New("not reached")
	check := func(inReadyz bool, err error) Check {
		return Check{Name: "apiservice-v1.shop.example.com", Backend: true, InReadyz: inReadyz, Ask: func(context.Context) error { return err }}
	}
	const named = "/apiservice-v1.shop.example.com"
	for _, test := range []struct {
		name  string
		check Check
		want  map[string]int
		words string
	}{
		{"reached", check(false, nil), map[string]int{"/readyz/backends": 200, "/readyz": 200, "/readyz/backends" + named: 200, "/readyz" + named: 404}, "[+]apiservice-v1.shop.example.com ok\n"},
		{"not reached", check(false, unreached), map[string]int{
			"/readyz/backends": 500, "/readyz": 200, "/healthz": 200, "/livez": 200, "/readyz/backends" + named: 500, "/readyz/backends/etcd": 200,
			"/readyz/backends/nothing": 404, "/readyz/backends?exclude=apiservice-v1.shop.example.com": 200, "/livez/backends": 404, "/healthz/backends": 404,
		}, "[-]apiservice-v1.shop.example.com failed: reason withheld\n"},
		{"not reached, and in readyz", check(true, unreached), map[string]int{
			"/readyz/backends": 500, "/readyz": 500, "/healthz": 200, "/livez": 200, "/readyz" + named: 500, "/healthz" + named: 404,
		}, "[-]apiservice"},
		{"tolerated", check(true, Tolerated(unreached)), map[string]int{"/readyz/backends": 200, "/readyz": 200, "/readyz" + named: 200}, "[+]apiservice-v1.shop.example.com tolerated: ok\n"},
	} {
		h := NewHealth(zap.NewNop(), Check{Name: "etcd", Ask: func(context.Context) error { return nil }}, test.check)
		for target, want := range test.want {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
			if w.Code != want {
				t.Errorf("%s: GET %s = %d %q, want %d", test.name, target, w.Code, w.Body, want)
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz/backends?verbose", nil))
		for _, words := range []string{test.words, "[+]etcd ok\n", "[+]shutdown ok\n", "readyz/backends check "} {
			if !strings.Contains(w.Body.String(), words) {
				t.Errorf("%s: GET /readyz/backends?verbose = %q, want %q in it", test.name, w.Body, words)
			}
		}
	}
	w := httptest.NewRecorder()
	NewHealth(zap.NewNop()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz/backends", nil))
	if w.Code != 404 {
		t.Errorf("GET /readyz/backends without checks of backends = %d %q, want 404", w.Code, w.Body)
	}
	if Tolerated(nil) != nil {
		t.Error("Tolerated(nil) returned an error, want nil")
	}
}

// A check that /readyz currently tolerates fails at its individual path and at every other endpoint.
func TestToleratedCheckFailsOutsideReadyz(t *testing.T) {
	tolerated := true
	h := NewHealth(zap.NewNop(), Check{
		Name: "etcd", Ask: func(context.Context) error { return errors.New("lost") }, Tolerate: func() bool { return tolerated },
	})
	ask := func(target string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		return w.Code, w.Body.String()
	}
	if code, body := ask("/readyz?verbose"); code != http.StatusOK || !strings.Contains(body, "[+]etcd tolerated: ok\n") {
		t.Errorf("GET /readyz?verbose with a tolerated failure = %d %s, want 200 with [+]etcd tolerated", code, body)
	}
	for _, target := range []string{"/readyz/etcd", "/healthz", "/healthz/etcd"} {
		if code, body := ask(target); code != http.StatusInternalServerError || !strings.Contains(body, "[-]etcd failed") {
			t.Errorf("GET %s with a failure that only /readyz tolerates = %d %s, want 500 with [-]etcd failed", target, code, body)
		}
	}
	tolerated = false
	if code, body := ask("/readyz"); code != http.StatusInternalServerError || !strings.Contains(body, "[-]etcd failed") {
		t.Errorf("GET /readyz with a failure that is not tolerated = %d %s, want 500 with [-]etcd failed", code, body)
	}
}

// /metrics/slis reports the results of the checks under kube-apiserver's metric names.
func TestHealthResultsUseKubeAPIServerMetricNames(t *testing.T) {
	broken := true
	h := NewHealth(zap.NewNop(), Check{Name: "etcd", Ask: func(context.Context) error {
		if broken {
			return errors.New("it is away")
		}
		return nil
	}}, Check{Name: "cache", Ask: func(context.Context) error { return Tolerated(errors.New("it is old")) }})
	static := NewStatic(StaticConfig{Health: h, Gatherer: prometheus.NewRegistry(), Aggregation: func() any { return nil }})
	get := func(path string) string {
		w := httptest.NewRecorder()
		static.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Body.String()
	}
	get("/readyz")
	broken = false
	get("/readyz")
	get("/livez")
	page := get("/metrics/slis")
	for _, want := range []string{
		`kubernetes_healthcheck{name="etcd",type="readyz"} 1`, `kubernetes_healthcheck{name="ping",type="livez"} 1`,
		`kubernetes_healthchecks_total{name="etcd",status="error",type="readyz"} 1`, `kubernetes_healthchecks_total{name="etcd",status="success",type="readyz"} 1`,
		`kubernetes_healthchecks_total{name="cache",status="success",type="readyz"} 2`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("page at /metrics/slis = %s, want the line %s", page, want)
		}
	}
	if strings.Contains(page, `name="etcd",type="livez"`) {
		t.Errorf("page at /metrics/slis = %s, want no result of etcd for livez", page)
	}
}

func TestFailedChecksOfStartAndStopAreNotWarnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		failure := errors.New("not there yet")
		h := NewHealth(zap.New(core), Check{Name: "store", Ask: func(context.Context) error { return failure }})
		expect := func(situation string, want ...zapcore.Level) {
			t.Helper()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/readyz", nil))
			var got []zapcore.Level
			for _, l := range logs.FilterMessage("health check failed").TakeAll() {
				got = append(got, l.Level)
			}
			logs.TakeAll()
			if !slices.Equal(got, want) {
				t.Errorf("%s: levels of the lines = %v, want %v", situation, got, want)
			}
		}
		expect("the process starts", zapcore.InfoLevel)
		time.Sleep(logging.StartupGrace)
		expect("the start takes long", zapcore.WarnLevel)
		failure = nil
		expect("it is ready")
		failure = errors.New("gone")
		expect("the check fails again", zapcore.WarnLevel)
		failure = nil
		h.Stopping()
		expect("the process stops", zapcore.InfoLevel)
	})
}
