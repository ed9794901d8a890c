package filters

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"portico.dev/internal/metrics"
	"portico.dev/internal/request"
)

// continuing is a response whose server can continue it.
type continuing struct {
	Response
	rest func()
}

func (w *continuing) Continue(rest func()) bool {
	w.rest = rest
	return true
}

// call calls f, and returns the value of its panic.
func call(f func()) (panicked any) {
	defer func() { panicked = recover() }()
	f()
	return nil
}

// However a request ends, each step is called once with the panic value, in reverse order, after the handler and the rest of the
// response.
func TestStepsRunOnceWhenRequestEnds(t *testing.T) {
	wrong := errors.New("a fault")
	for name, c := range map[string]struct {
		handler, rest, step any // panic value of each; nil: it returns
		continues           bool
		code                int
		told                []any // arguments of the steps, in the order of the calls
		logged              float64
	}{
		"it returns":             {code: 200, told: []any{nil, nil, nil}},
		"it panics":              {handler: wrong, code: 500, told: []any{wrong, wrong, wrong}, logged: 1},
		"it aborts":              {handler: http.ErrAbortHandler, told: []any{http.ErrAbortHandler, http.ErrAbortHandler, http.ErrAbortHandler}},
		"a step panics":          {step: wrong, code: 500, told: []any{nil, nil, wrong}, logged: 1},
		"it continues":           {continues: true, code: 200, told: []any{nil, nil, nil}},
		"its rest panics":        {continues: true, rest: wrong, code: 500, told: []any{wrong, wrong, wrong}, logged: 1},
		"its rest aborts":        {continues: true, rest: http.ErrAbortHandler, told: []any{http.ErrAbortHandler, http.ErrAbortHandler, http.ErrAbortHandler}},
		"it panics and has rest": {continues: true, handler: wrong, code: 500, told: []any{wrong, wrong, wrong}, logged: 1},
		"a step panics at last":  {continues: true, step: wrong, code: 500, told: []any{nil, nil, wrong}, logged: 1},
	} {
		for server, can := range map[string]bool{"a server that can continue": true, "another server": false} {
			t.Run(name+", "+server, func(t *testing.T) {
				m := metrics.NewRequests(prometheus.NewRegistry())
				var did []string
				var told []any
				note := func(what string, panics any) {
					did = append(did, what)
					if panics != nil {
						panic(panics)
					}
				}
				step := func(name string, panics any) Filter {
					return Filter{name, func(next http.Handler) http.Handler {
						return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							AtEnd(r.Context(), StepFunc(func(panicked any) {
								told = append(told, panicked)
								note(name, panics)
							}))
							next.ServeHTTP(w, r)
						})
					}}
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				h := Chain(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if c.continues {
						Continue(r.Context(), func() {
							if did[len(did)-1] != "handler" {
								t.Errorf("the rest of the response began after %v, want it after the handler", did)
							}
							note("rest", c.rest)
						})
					}
					note("handler", c.handler)
				}), []Filter{{"recover", Recover(zap.NewNop(), m)}, step("first", nil), step("second", c.step), step("third", nil)})
				answer := httptest.NewRecorder()
				answer.Code = 0
				r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(&Context{Context: request.Context{Context: ctx}})
				w := &continuing{Response: Response{ResponseWriter: answer}}
				var writer http.ResponseWriter = w
				if !can {
					writer = &w.Response
				}
				p := call(func() { h.ServeHTTP(writer, r) })
				if c.continues && can && c.handler == nil {
					if len(told) != 0 || p != nil || w.rest == nil {
						t.Fatalf("after the handler: panic %v, arguments of the steps %v, rest present %t, want no panic, no steps and the rest", p, told, w.rest != nil)
					}
					p = call(w.rest)
				}
				want := []string{"handler", "rest", "third", "second", "first"}
				if !c.continues || c.handler != nil {
					want = slices.Delete(want, 1, 2)
				}
				if !slices.Equal(did, want) || !slices.Equal(told, c.told) {
					t.Errorf("calls = %v with the arguments %v, want %v and %v", did, told, want, c.told)
				}
				if aborted := p == http.ErrAbortHandler; aborted != (c.code == 0) || p != nil && !aborted {
					t.Errorf("panic of the chain = %v, want http.ErrAbortHandler if the status is 0 (%d)", p, c.code)
				}
				code := answer.Code
				if code == 0 && c.code == http.StatusOK {
					code = http.StatusOK // nothing was written
				}
				if code != c.code || testutil.ToFloat64(m.Panics) != c.logged {
					t.Errorf("response = %d with %g counted panics, want %d and %g", answer.Code, testutil.ToFloat64(m.Panics), c.code, c.logged)
				}
			})
		}
	}
}

// Steps beyond the preallocated capacity are called, too.
func TestStepsBeyondCapacityAreCalled(t *testing.T) {
	const steps = 50
	var did []int
	h := Recover(zap.NewNop(), metrics.NewRequests(prometheus.NewRegistry()))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for i := range steps {
			AtEnd(r.Context(), StepFunc(func(any) { did = append(did, i) }))
		}
	}))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	h.ServeHTTP(httptest.NewRecorder(), r.WithContext(&Context{Context: request.Context{Context: r.Context()}}))
	if len(did) != steps || did[0] != steps-1 || !slices.IsSortedFunc(did, func(a, b int) int { return b - a }) {
		t.Errorf("calls of the steps = %v, want %d in reverse order", did, steps)
	}
}
