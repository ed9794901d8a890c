package overload

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// worker is a client that must get a successful response or a valid refusal.
type worker struct {
	name       string
	credential credential
	privileged bool // every request is answered 200
	// untilExhausted is true for workers that may get 429 at the highest level.
	untilExhausted bool

	mu      sync.Mutex // guards the following fields
	served  int
	refused int
	took    []time.Duration
	faults  []string
}

// work sends requests repeatedly, one in ten over a new connection.
func (w *worker) work(ctx context.Context, f *front) {
	client := f.client(w.credential, true)
	defer func() { client.CloseIdleConnections() }()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		if i%10 == 9 {
			client.CloseIdleConnections()
			client = f.client(w.credential, i%20 == 9)
		}
		began := time.Now()
		code, after, err := f.get(context.WithoutCancel(ctx), client, w.credential, "/api/v1/namespaces/default/configmaps")
		w.note(code, after, err, time.Since(began))
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (w *worker) note(code int, after string, err error, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took = append(w.took, took)
	switch {
	case err == nil && code == http.StatusOK:
		w.served++
	case w.untilExhausted && err == nil && code == http.StatusServiceUnavailable && after != "":
		w.refused++ // the level is exhausted
	case !w.privileged && err == nil && (code == http.StatusServiceUnavailable || code == http.StatusTooManyRequests) && after != "":
		w.refused++
	case !w.privileged && err != nil && goneElsewhere.MatchString(err.Error()):
		w.refused++
	default:
		w.faults = append(w.faults, fmt.Sprintf("%d, Retry-After %q, %v after %s", code, after, err, took))
	}
}

// goneElsewhere is how streams and connections of ordinary users are refused and ended.
var goneElsewhere = regexp.MustCompile("REFUSED_STREAM|ENHANCE_YOUR_CALM|GOAWAY")

// report fails the test for faults, and logs the results.
func (w *worker) report(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.took)
	if len(w.took) == 0 {
		t.Errorf("%s made no request, want some", w.name)
		return
	}
	t.Logf("%-10s %4d served, %4d told to come back, p99 %s", w.name, w.served, w.refused, w.took[len(w.took)*99/100].Round(time.Millisecond))
	if len(w.faults) > 0 {
		t.Errorf("%s: %d requests failed, want 0; the first ones: %s", w.name, len(w.faults), strings.Join(w.faults[:min(3, len(w.faults))], "; "))
	}
	if w.privileged && w.served == 0 {
		t.Errorf("%s had no successful request, want some", w.name)
	}
}

// attackTime is the duration of most attacks, and calmTime the maximum time until memory is free again: seconds, on a machine
// with other load.
const (
	attackTime = 6 * time.Second
	calmTime   = 45 * time.Second
)

// Attackers try to have the front door hold ten times its memory, in every way and then in all of them at once.
func TestD18D19AttackersAtTenTimesTheMemory(t *testing.T) {
	f := start(t)
	var all int64
	for _, a := range attacks {
		all += a.tries
		t.Run(a.name, func(t *testing.T) { f.under(t, a) })
	}
	if all < 10*limit {
		t.Errorf("the attackers try for %d bytes, want at least ten times %d", all, limit)
	}
	t.Run("all at once", func(t *testing.T) {
		f.under(t, attack{"all at once", all, attackTime, func(ctx context.Context, f *front) int64 {
			var together sync.WaitGroup
			var made atomic.Int64
			for _, a := range attacks {
				together.Go(func() { made.Add(a.run(ctx, f)) })
			}
			together.Wait()
			return made.Load()
		}})
	})
	admin := f.client(credential{certificate: &f.admin}, true)
	defer admin.CloseIdleConnections()
	for _, name := range []string{"portico_overload_shed_requests_total", "portico_overload_closed_connections_total"} {
		n, err := f.metric(t.Context(), admin, name)
		if err != nil || n == 0 {
			t.Errorf("metric %s = %v, %v; want more than 0: the attacks had no effect", name, n, err)
		}
	}
}

// under runs all workers while the front door is attacked.
func (f *front) under(t *testing.T, a attack) {
	workers := []*worker{
		{name: "admin", credential: credential{certificate: &f.admin}, privileged: true},
		{name: "node", credential: credential{certificate: &f.node}, privileged: true, untilExhausted: true},
		{name: "controller", credential: credential{token: f.controller}, privileged: true, untilExhausted: true},
		{name: "bystander", credential: credential{token: f.bystander}},
	}
	ctx, cancel := context.WithTimeout(t.Context(), a.lasts)
	defer cancel()
	var working sync.WaitGroup
	for _, w := range workers {
		working.Go(func() { w.work(ctx, f) })
	}
	made := a.run(ctx, f)
	<-ctx.Done()
	working.Wait()
	for _, w := range workers {
		w.report(t)
	}
	admin := f.client(credential{certificate: &f.admin}, true)
	defer admin.CloseIdleConnections()
	began := time.Now()
	for level := 1.0; level > 0; {
		var err error
		if level, err = f.metric(t.Context(), admin, "portico_overload_level"); err != nil {
			t.Fatal(err)
		}
		if time.Since(began) > calmTime {
			t.Fatalf("memory is short %s after the attack, want level 0: level %v", calmTime, level)
		}
	}
	calm := time.Since(began)
	closed, _ := f.metric(t.Context(), admin, "portico_overload_closed_connections_total")
	shed, _ := f.metric(t.Context(), admin, "portico_overload_shed_requests_total")
	now, most := f.resident(t)
	t.Logf("%d connections tried for up to %d MiB; resident %d MiB, at most %d of %d MiB; normal after %s; so far %v requests were shed and %v connections closed",
		made, a.tries>>20, now>>20, most>>20, limit>>20, calm.Round(time.Millisecond), shed, closed)
	if most > limit+margin {
		t.Errorf("memory of the process = %d MiB, want at most %d and a margin of %d", most>>20, limit>>20, margin>>20)
	}
	bystander := workers[3]
	client := f.client(bystander.credential, true)
	defer client.CloseIdleConnections()
	if code, _, err := f.get(t.Context(), client, bystander.credential, "/api/v1/namespaces/default/configmaps"); code != http.StatusOK {
		t.Errorf("GET by the bystander afterwards = %d, %v; want 200", code, err)
	}
}
