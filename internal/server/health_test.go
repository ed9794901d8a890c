package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// What a check says of itself is in reports while it passes.
func TestNotesOfChecks(t *testing.T) {
	var sick error
	note := "of noon, 1m old"
	h := NewHealth(zap.NewNop(), Check{Name: "state", Ask: func(context.Context) error { return sick }, Note: func() string { return note }})
	ask := func(target string) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		return w.Body.String()
	}
	if got := ask("/readyz?verbose"); !strings.Contains(got, "[+]state ok: of noon, 1m old\n") {
		t.Error(got)
	}
	if got := ask("/readyz"); got != "ok" {
		t.Error(got)
	}
	note = ""
	if got := ask("/readyz?verbose"); !strings.Contains(got, "[+]state ok\n") {
		t.Error(got)
	}
	note, sick = "of noon", errors.New("too old")
	if got := ask("/readyz?verbose"); !strings.Contains(got, "[-]state failed: reason withheld\n") || strings.Contains(got, "noon") {
		t.Error(got)
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
			t.Errorf("%s: %d %q, want %d %q", target, w.Code, w.Body, want.code, want.body)
		}
		if strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s tells why", target)
		}
	}
	sick = nil
	h.Stopping()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz?verbose", nil))
	if w.Code != 500 || !strings.Contains(w.Body.String(), "[-]shutdown") {
		t.Errorf("while stopping: %d %q", w.Code, w.Body)
	}
	if w = httptest.NewRecorder(); true {
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/livez", nil))
	}
	if w.Code != 200 {
		t.Errorf("livez while stopping: %d", w.Code)
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
				t.Errorf("%s: %s: %d %q, want %d", test.name, target, w.Code, w.Body, want)
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz/backends?verbose", nil))
		for _, words := range []string{test.words, "[+]etcd ok\n", "[+]shutdown ok\n", "readyz/backends check "} {
			if !strings.Contains(w.Body.String(), words) {
				t.Errorf("%s: no %q in %q", test.name, words, w.Body)
			}
		}
	}
	w := httptest.NewRecorder()
	NewHealth(zap.NewNop()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz/backends", nil))
	if w.Code != 404 {
		t.Errorf("without such checks: %d %q", w.Code, w.Body)
	}
	if Tolerated(nil) != nil {
		t.Error("no error is tolerated")
	}
}

// What /readyz tolerates at the moment fails on its own, and everywhere else.
func TestHealthTolerates(t *testing.T) {
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
		t.Errorf("/readyz: %d %s", code, body)
	}
	for _, target := range []string{"/readyz/etcd", "/healthz", "/healthz/etcd"} {
		if code, body := ask(target); code != http.StatusInternalServerError || !strings.Contains(body, "[-]etcd failed") {
			t.Errorf("%s: %d %s", target, code, body)
		}
	}
	tolerated = false
	if code, body := ask("/readyz"); code != http.StatusInternalServerError || !strings.Contains(body, "[-]etcd failed") {
		t.Errorf("/readyz when it is not tolerated: %d %s", code, body)
	}
}

// What came of checks is at /metrics/slis, by kube-apiserver's names.
func TestHealthResults(t *testing.T) {
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
			t.Errorf("the page lacks %s:\n%s", want, page)
		}
	}
	if strings.Contains(page, `name="etcd",type="livez"`) {
		t.Errorf("etcd was not asked for /livez:\n%s", page)
	}
}
