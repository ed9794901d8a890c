package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/dispatch/dispatchtest"
	"portico.dev/internal/metrics"
	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routetable"
)

// rollingBack sends all requests to the second backend, until two of four have failed.
const rollingBack = `
metadata: {name: v1.example.com, uid: u, generation: 1}
spec:
  backends: [{name: first}, {name: second, service: {namespace: ns, name: second}}, {name: spare, service: {namespace: ns, name: spare}}]
  rules:
  - {name: all, backendRefs: [{name: first, weight: 0}, {name: second}], FALLBACKrollback: {errorPercent: 50, minRequests: 4, interval: 1h}}
`

type rolledBack struct {
	rule    string
	backend int
	found   routing.Errors
}

func rollbacksOf(router *testRouter) *[]rolledBack {
	all := &[]rolledBack{}
	router.RollBack = func(route *routetable.Route, rule string, backend int, found routing.Errors) {
		*all = append(*all, rolledBack{rule, backend, found})
	}
	return all
}

// Eight requests of each kind. The rollback happens after the fourth failed request.
func TestRollbackCountsFailedRequests(t *testing.T) {
	set := backendsFor(t)
	const path = "/apis/example.com/v1/namespaces/a/widgets"
	aborts := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	breaks := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100000")
		_, _ = io.WriteString(w, strings.Repeat("x", 50000))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	left, leave := context.WithCancel(t.Context())
	leave()
	for name, c := range map[string]struct {
		second   http.Handler
		fallback bool
		r        func() *http.Request
		failed   bool
	}{
		"200":                           {saying("{}"), false, nil, false},
		"404":                           {refusing(404), false, nil, false},
		"409":                           {refusing(409), false, nil, false},
		"429":                           {refusing(429), false, nil, false},
		"500":                           {refusing(500), false, nil, true},
		"501":                           {refusing(501), false, nil, false},
		"502":                           {refusing(502), false, nil, true},
		"503":                           {refusing(503), false, nil, true},
		"504":                           {refusing(504), false, nil, true},
		"a redirect":                    {http.RedirectHandler("/x", http.StatusFound), false, nil, true},
		"no response":                   {aborts, false, nil, true},
		"no response, for a write":      {aborts, false, func() *http.Request { return httptest.NewRequest(http.MethodDelete, path+"/w", nil) }, true},
		"half a response":               {breaks, false, nil, true},
		"not available":                 {nil, false, nil, true},
		"500 with a fallback":           {refusing(500), true, nil, true},
		"no response, and the fallback": {aborts, true, nil, true},
		"not available, the fallback is asked at once": {nil, true, nil, false},
		"the client left no time":                      {refusing(504), false, func() *http.Request { return httptest.NewRequest(http.MethodGet, path+"?timeout=1ms", nil) }, false},
		"the client left":                              {refusing(500), false, func() *http.Request { return httptest.NewRequestWithContext(left, http.MethodGet, path, nil) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(rollingBack, "FALLBACK", "", 1)
			if c.fallback {
				text = strings.Replace(rollingBack, "FALLBACK", "fallback: spare, ", 1)
			}
			router := routerOf(dispatchtest.Table(t, set, text, map[string]http.Handler{"first": named("first"), "second": c.second, "spare": named("spare")}))
			found := rollbacksOf(router)
			h := chainFor(&user.DefaultInfo{Name: "alice"}, router)
			byFirst := 0
			for range 8 {
				r := httptest.NewRequest(http.MethodGet, path, nil)
				if c.r != nil {
					r = c.r()
				}
				w := httptest.NewRecorder()
				func() {
					defer func() { _ = recover() }() // a response that breaks off
					h.ServeHTTP(w, r)
				}()
				if w.Body.String() == "first" {
					byFirst++
				}
			}
			want := "[]"
			if c.failed {
				want = fmt.Sprint([]rolledBack{{"all", 1, routing.Errors{Failed: 4, Requests: 4, Interval: 3600e9}}})
			}
			if got := fmt.Sprint(*found); got != want {
				t.Errorf("rollbacks = %s, want %s", got, want)
			}
			if (byFirst == 4) != c.failed || byFirst != 0 && byFirst != 4 {
				t.Errorf("the first backend received %d requests, want 4 after a rollback (%t) and 0 without", byFirst, c.failed)
			}
		})
	}
}

// A client that does not read the response, or only half of it, does not count as a failure of the backend.
func TestStalledClientIsNotBackendFailure(t *testing.T) {
	set := backendsFor(t)
	router := routerOf(dispatchtest.Table(t, set, strings.Replace(rollingBack, "FALLBACK", "", 1), map[string]http.Handler{"first": named("first"), "second": saying(`{"a":"b"}`)}))
	found := rollbacksOf(router)
	h := chainFor(&user.DefaultInfo{Name: "alice"}, router)
	for range 8 {
		func() {
			defer func() { _ = recover() }()
			h.ServeHTTP(&deafWriter{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/apis/example.com/v1/widgets", nil))
		}()
	}
	if len(*found) != 0 {
		t.Errorf("rollbacks for clients that do not read = %v, want none", *found)
	}
}

// A client that disconnects during a response does not count as a failure of the backend, and the partial response is not compared.
func TestClientDisconnectIsNotBackendFailure(t *testing.T) {
	t.Parallel()
	set := backendsFor(t)
	half := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100000")
		_, _ = io.WriteString(w, strings.Repeat("x", 50000))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	second := &requests{}
	text := strings.Replace(rollingBack, "FALLBACK", "mirror: {backend: spare}, ", 1)
	router := routerOf(dispatchtest.Table(t, set, text, map[string]http.Handler{"first": named("first"), "second": half, "spare": second}))
	sent, found := mirrorReads(t, router, 1), rollbacksOf(router)
	h := chainFor(&user.DefaultInfo{Name: "alice"}, router)
	for range 8 {
		func() {
			defer func() { _ = recover() }()
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			h.ServeHTTP(&leavingWriter{httptest.NewRecorder(), leave}, httptest.NewRequestWithContext(ctx, http.MethodGet, "/apis/example.com/v1/widgets", nil))
		}()
	}
	if len(*found) != 0 {
		t.Errorf("rollbacks for clients that disconnect = %v, want none", *found)
	}
	last := sent.Begin("v1.example.com", "second", "/last")
	last.Send = func(context.Context, http.ResponseWriter) error { return io.EOF }
	sent.End(last)
	sent.are(t, map[string]int{metrics.MirrorFailed: 1})
	if n := len(second.list()); n != 0 {
		t.Errorf("%d copies were sent for clients that disconnect, want 0", n)
	}
}

type leavingWriter struct {
	*httptest.ResponseRecorder
	leave func()
}

func (w *leavingWriter) Write(p []byte) (int, error) {
	defer w.leave()
	return w.ResponseRecorder.Write(p)
}

type deafWriter struct{ *httptest.ResponseRecorder }

func (*deafWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
