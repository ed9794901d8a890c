package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

func TestProfilesAreServedToAuthorizedUsers(t *testing.T) {
	for name, c := range map[string]struct {
		off    bool
		user   string
		target string
		code   int
		says   string
	}{
		"the list of them":           {false, "root", "/debug/pprof/", 200, "goroutine"},
		"without the slash":          {false, "root", "/debug/pprof", 302, ""},
		"one that is taken at once":  {false, "root", "/debug/pprof/goroutine?debug=1", 200, "goroutine profile"},
		"one that is not there":      {false, "root", "/debug/pprof/nothing", 404, "Unknown profile"},
		"the command line, as there": {false, "root", "/debug/pprof/cmdline", 404, "Unknown profile"},
		"an ordinary user":           {false, "alice", "/debug/pprof/heap", 403, "forbidden"},
		"nobody":                     {false, "", "/debug/pprof/", 401, "Unauthorized"},
		"turned off":                 {true, "root", "/debug/pprof/", 404, "could not find the requested resource"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench("root *", "alice get /metrics")
			b.handler = NewStatic(StaticConfig{
				Health: NewHealth(zap.NewNop()), Gatherer: prometheus.NewRegistry(), Aggregation: func() any { return nil }, Profiling: !c.off,
			}).ServeHTTP
			w := b.do(t, http.MethodGet, c.target, "Test-User: "+c.user)
			if w.Code != c.code || !strings.Contains(w.Body.String(), c.says) {
				t.Errorf("GET %s by %q = %d %s, want %d with %q", c.target, c.user, w.Code, w.Body, c.code, c.says)
			}
			if w := b.do(t, http.MethodGet, "/", "Test-User: root"); strings.Contains(w.Body.String(), "pprof") {
				t.Errorf("index of paths = %s, want no pprof", w.Body)
			}
		})
	}
}
