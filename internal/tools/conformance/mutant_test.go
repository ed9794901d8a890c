package conformance_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/auth/authtest"
	"portico.dev/internal/tools/conformance"
)

// mutant is the host with one fault.
type mutant struct {
	// wrong wraps the handler that forwards to the host.
	wrong func(next http.Handler) http.Handler
	// who returns the caller's identity. Default: the identity headers of a verified front proxy.
	who func(w *testFrontDoor, r *http.Request) http.Header
	// write and rotate run the checks that need them, on a separate host.
	write, rotate bool
	// steady is a fault that no watch can show: the slow watch checks are omitted.
	steady bool
	// timeout is for faults that the checks have to wait for. Default: patience.
	timeout time.Duration
}

// vouched accepts identity headers with the front proxy's certificate.
func vouched(w *testFrontDoor, r *http.Request) http.Header {
	if !w.verified(r) {
		return nil
	}
	return http.Header{"X-Remote-User": r.Header.Values("X-Remote-User"), "X-Remote-Group": r.Header.Values("X-Remote-Group")}
}

// examine runs every check against the mutant, and returns the failed ones.
func (m mutant) examine(t *testing.T, w *testFrontDoor, at *authtest.Server) ([]string, error) {
	server := w.server()
	server.URL, server.Roots = at.URL, at.RootPEM
	c := conformance.Config{Server: server, GroupVersions: []schema.GroupVersion{{Group: group, Version: "v1"}}, Timeout: cmp.Or(m.timeout, patience),
		Write: m.write, Rotate: m.rotate, RotateTimeout: patience}
	if m.steady {
		c.Only = []string{"discovery", "openapi", "objects", "forms", "selectors", "paging", "scope", "errors", "trust", "write"}
	}
	if m.rotate {
		c.Client, c.RotateTimeout = w.client(), 2*time.Second // which this one is meant to exceed
	}
	e, err := conformance.New(c)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	cards, err := e.Run(t.Context())
	if err != nil {
		return nil, err
	}
	var wrong []string
	for _, r := range cards[0].Results {
		if r.Outcome == conformance.Fail || r.Outcome == conformance.Warn {
			wrong = append(wrong, r.ID+" ("+r.Detail+")")
		}
	}
	return wrong, nil
}

func (m mutant) serve(t *testing.T, w *testFrontDoor) *authtest.Server {
	who := m.who
	if who == nil {
		who = vouched
	}
	handler := w.carry(func(r *http.Request) http.Header { return who(w, r) })
	if m.wrong != nil {
		handler = m.wrong(handler)
	}
	return authtest.Serve(t, handler)
}

// TestEachFaultFailsOnlyItsCheck: every check has a faulty server that fails only that check.
func TestEachFaultFailsOnlyItsCheck(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	all := mutants()
	known := map[string]bool{}
	for _, r := range examine(t, conformance.Config{Server: build(t).server()})[0].Results {
		known[r.ID] = true
		if _, ok := all[r.ID]; !ok {
			t.Errorf("no mutant fails the check %s, want one", r.ID)
		}
	}
	shared := build(t)
	var running sync.WaitGroup
	turns := make(chan struct{}, 24)
	ids := []string{"initial/events", "watch/ends"} // they take longest to find
	for id := range all {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for _, id := range ids {
		m := all[id]
		if !known[id] {
			t.Errorf("mutant for the unknown check %s, want a known one", id)
		}
		w := shared
		if m.write || m.rotate {
			w = build(t)
		}
		at := m.serve(t, w)
		turns <- struct{}{}
		// Not t.Parallel: they wait for watches more than they compute.
		running.Go(func() {
			defer func() { <-turns }()
			wrong, err := m.examine(t, w, at)
			if err != nil || len(wrong) != 1 || !strings.HasPrefix(wrong[0], id+" ") {
				t.Errorf("failed checks of the mutant for %s = %v %q, want only that check", id, err, wrong)
			}
		})
	}
	running.Wait()
}

// when applies a fault to some requests.
func when(this func(*http.Request) bool, fault func(w http.ResponseWriter, r *http.Request, next http.Handler)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if this(r) {
				fault(w, r, next)
			} else {
				next.ServeHTTP(w, r)
			}
		})
	}
}

// both is several conditions.
func both(these ...func(*http.Request) bool) func(*http.Request) bool {
	return func(r *http.Request) bool {
		return !slices.ContainsFunc(these, func(this func(*http.Request) bool) bool { return !this(r) })
	}
}

func at(path string) func(*http.Request) bool {
	return func(r *http.Request) bool { return r.URL.Path == path }
}

func accepting(text string) func(*http.Request) bool {
	return func(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), text) }
}

func plain(r *http.Request) bool { return r.Header.Get("Accept") == "application/json" }

func method(m string) func(*http.Request) bool {
	return func(r *http.Request) bool { return r.Method == m }
}

// asking is for a parameter with a value that contains text.
func asking(parameter, text string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		return r.URL.Query().Has(parameter) && strings.Contains(r.URL.Query().Get(parameter), text)
	}
}

func not(this func(*http.Request) bool) func(*http.Request) bool {
	return func(r *http.Request) bool { return !this(r) }
}

// dropping forgets parameters.
func dropping(parameters ...string) func(http.ResponseWriter, *http.Request, http.Handler) {
	return asked(func(r *http.Request) {
		q := r.URL.Query()
		for _, p := range parameters {
			q.Del(p)
		}
		r.URL.RawQuery = q.Encode()
	})
}

// asked changes the request to the host.
func asked(change func(*http.Request)) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		r = r.Clone(r.Context())
		change(r)
		next.ServeHTTP(w, r)
	}
}

// answered changes the host's response.
func answered(change func(*httptest.ResponseRecorder)) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		rec := httptest.NewRecorder()
		next.ServeHTTP(rec, r)
		change(rec)
		maps.Copy(w.Header(), rec.Header())
		w.Header().Del("Content-Length")
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes())
	}
}

type fields = map[string]any

// edited changes the JSON that the host answers.
func edited(change func(fields)) func(http.ResponseWriter, *http.Request, http.Handler) {
	return answered(func(rec *httptest.ResponseRecorder) {
		var v fields
		if rec.Code == http.StatusNotModified || json.Unmarshal(rec.Body.Bytes(), &v) != nil {
			return
		}
		change(v)
		rec.Body.Reset()
		_ = json.NewEncoder(rec.Body).Encode(v)
	})
}

// events changes a watch line by line.
func events(change func(line []byte) []byte) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		next.ServeHTTP(&lines{ResponseWriter: w, change: change}, r)
	}
}

type lines struct {
	http.ResponseWriter
	change func([]byte) []byte
	rest   []byte
}

func (l *lines) Unwrap() http.ResponseWriter { return l.ResponseWriter }

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		if _, err := l.ResponseWriter.Write(append(l.change(bytes.Clone(line)), '\n')); err != nil {
			return 0, err
		}
		l.rest = rest
	}
}
