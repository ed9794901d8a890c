package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	process "portico.dev/e2e/measure"
)

// usage is the CPU time used by the front door so far, and its current memory.
type usage struct {
	CPU        time.Duration
	Heap, RSS  int64
	Peak       int64 // peak of resident memory since the last change of the backends
	Goroutines int
}

// flips contains the cost of changed verdicts.
type flips struct {
	CPU  time.Duration   // each
	Took []time.Duration // from the change of the table to the new document
}

// control returns the handler with which the benchmark controls the front door.
func (f *front) control() http.Handler {
	mux := http.NewServeMux()
	handle := func(path string, do func(r *http.Request) (any, error)) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			answer, err := do(r)
			if err != nil {
				w.WriteHeader(http.StatusInternalServerError)
				answer = err.Error()
			}
			_ = json.NewEncoder(w).Encode(answer)
		})
	}
	handle("/usage", func(r *http.Request) (any, error) { return use(r.FormValue("memory") != "") })
	handle("/become", func(r *http.Request) (any, error) { return nil, f.become(number(r, "hung"), number(r, "dead")) })
	handle("/flip", func(r *http.Request) (any, error) { return f.flip(number(r, "n")) })
	handle("/append", func(*http.Request) (any, error) { return f.appear() })
	return mux
}

func number(r *http.Request, name string) int {
	n, err := strconv.Atoi(r.FormValue(name))
	if err != nil {
		return 0
	}
	return n
}

// use measures the current usage. If memory is set, it collects garbage first, which takes a while.
func use(memory bool) (usage, error) {
	cpu, err := cpuTime()
	if err != nil || !memory {
		return usage{CPU: cpu}, err
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	peak, err := process.PeakRSS(os.Getpid())
	if err != nil {
		return usage{}, err
	}
	return usage{CPU: cpu, Heap: int64(m.HeapAlloc), RSS: resident(), Peak: peak, Goroutines: runtime.NumGoroutine()}, nil
}

func cpuTime() (time.Duration, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0, err
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()), nil
}

func resident() int64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// become makes the first hanging backends hang, the next dying ones refuse connections and the rest healthy, and
// waits until the documents reflect that. As in a front door, the verdict on a backend that does not respond is
// unavailable, but requests are still sent to it.
func (f *front) become(hanging, dying int) error {
	if err := process.ResetPeakRSS(os.Getpid()); err != nil {
		return err
	}
	want := hanging + dying
	err := f.edit(func() error {
		for i, b := range f.backends {
			m := alive
			if i < hanging {
				m = hung
			} else if i < want {
				m = dead
			}
			b.become(m)
			f.routes[i].Available, f.routes[i].Reason = m == alive, "FailedDiscoveryCheck"
		}
		return nil
	})
	if err != nil {
		return err
	}
	return await(func() bool { return f.servesAll(len(f.backends)) && f.stale() == want })
}

// servesAll reports whether discovery and OpenAPI include every backend.
func (f *front) servesAll(n int) bool {
	s := f.merger.Current()
	if s == nil || len(s.GroupVersions()) != n {
		return false
	}
	for _, g := range s.GroupVersions() {
		if len(g.Resources) != resourcesEach {
			return false
		}
	}
	w := httptest.NewRecorder()
	f.library.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi/v3", nil))
	return strings.Count(w.Body.String(), "serverRelativeURL") == n
}

func (f *front) stale() int {
	n := 0
	for _, g := range f.merger.Current().GroupVersions() {
		if g.Freshness != apidiscoveryv2.DiscoveryFreshnessCurrent {
			n++
		}
	}
	return n
}

// flip changes the verdict on one backend after the other, back and forth, each time after the document reflects the
// previous change.
func (f *front) flip(n int) (flips, error) {
	result := flips{}
	before, err := cpuTime()
	if err != nil {
		return result, err
	}
	for i := range n {
		want := f.stale() + 1 - 2*(i%2)
		seen, began := f.merger.Current(), time.Now()
		if err := f.edit(func() error {
			f.routes[i/2].Available = i%2 == 1
			return nil
		}); err != nil {
			return result, err
		}
		if err := await(func() bool {
			now := f.merger.Current()
			news := now != seen // stale is expensive compared with the measured work, so it runs once per document
			seen = now
			return news && f.stale() == want
		}); err != nil {
			return result, err
		}
		result.Took = append(result.Took, time.Since(began))
	}
	after, err := cpuTime()
	result.CPU = (after - before) / time.Duration(n)
	return result, err
}

// appear registers another backend and returns the time until its resources are in the document.
func (f *front) appear() (time.Duration, error) {
	began := time.Now()
	if err := f.edit(f.append); err != nil {
		return 0, err
	}
	gv := schema.GroupVersion{Group: groupName(len(f.backends) - 1), Version: "v1"}
	err := await(func() bool {
		g, ok := f.merger.Current().Lookup(gv)
		return ok && len(g.Resources) == resourcesEach && g.Freshness == apidiscoveryv2.DiscoveryFreshnessCurrent
	})
	return time.Since(began), err
}

func await(is func() bool) error {
	deadline := time.Now().Add(time.Minute)
	for !is() {
		if time.Now().After(deadline) {
			return fmt.Errorf("the documents do not say so")
		}
		time.Sleep(200 * time.Microsecond)
	}
	return nil
}

// recorded serves recorded responses.
type recorded struct {
	source  http.Handler
	mu      sync.Mutex
	answers map[string]*httptest.ResponseRecorder
}

func newBytes(source http.Handler) http.Handler {
	return &recorded{source: source, answers: map[string]*httptest.ResponseRecorder{}}
}

func (b *recorded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/bytes")
	b.mu.Lock()
	answer := b.answers[path]
	if answer == nil {
		original := r.Clone(r.Context())
		original.URL.Path = path
		answer = httptest.NewRecorder()
		b.source.ServeHTTP(answer, original)
		b.answers[path] = answer
	}
	b.mu.Unlock()
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}
