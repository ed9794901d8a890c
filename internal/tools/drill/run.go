package drill

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"portico.dev/internal/tools/drill/faulty"
)

// startWithin bounds the time until the drill's extension servers listen.
const startWithin = 10 * time.Second

// Run runs a drill and cleans up after it, even if ctx ends.
func Run(ctx context.Context, d Drill, t Target, progress func(phase string)) *Result {
	r := &Result{Drill: d.Name, Title: d.Title, Server: t.Name, Began: time.Now(), Left: []string{}}
	defer func() { r.Took = Seconds(time.Since(r.Began)) }()
	if why := t.refuses(ctx, d); why != "" {
		r.Verdict, r.Why = Skipped, why
		return r
	}
	stop, err := t.complete(ctx, d, progress)
	if err != nil {
		r.Verdict, r.Why = Broken, err.Error()
		return r
	}
	defer func() {
		if err := stop(); err != nil {
			r.Left = append(r.Left, err.Error())
		}
	}()
	s, err := newStage(ctx, d, t, strings.ToLower(rand.Text()[:8]), progress)
	if err != nil {
		r.Verdict, r.Why = Broken, err.Error()
		return r
	}
	err = s.hold(ctx)
	r.History = &s.record.history
	r.Left, r.Commands = append(r.Left, r.History.Left...), r.History.Commands
	expected := Expected(d)
	if t.APIRoute && !d.Unregisters {
		expected = append(expected, othersUnaffected(OtherBackend))
	}
	r.assess(r.History, expected)
	r.Measures, r.Traffic = measures(r.History), Rows(r.History)
	r.Verdict = verdict(r.Findings, err)
	if r.Verdict == Broken {
		r.Why, r.Findings, r.Excused, r.Violated = err.Error(), nil, 0, nil
	}
	return r
}

// complete starts the servers that the target lacks for a drill, and returns a function that stops them.
func (t *Target) complete(ctx context.Context, d Drill, progress func(string)) (stop func() error, err error) {
	stop = func() error { return nil }
	if missing := d.Replicas - len(t.Replicas); missing > 0 {
		progress("starting further front doors")
		var more []*rest.Config
		if more, stop, err = t.Grow(ctx, missing); err == nil {
			t.Replicas = slices.Concat(t.Replicas, more)
		}
	}
	if d.Cluster && t.Cluster == "" {
		progress("starting a cluster")
		t.Cluster, stop, err = t.StartCluster(ctx)
	}
	return stop, err
}

// assess checks a history against expectations.
func (r *Result) assess(h *History, expected []Expectation) {
	r.Findings = judge(h, expected)
	r.Excused = len(h.excuses)
	for _, f := range r.Findings {
		if !f.Holds {
			r.Violated = append(r.Violated, f.violation)
		}
	}
}

func verdict(findings []Finding, err error) Verdict {
	if err != nil {
		return Broken
	}
	for _, f := range findings {
		if !f.Holds {
			return Failed
		}
	}
	return Passed
}

var errTooLong = errors.New("the drill took longer than it may")

// hold runs the servers of the drill, the traffic and the script. It cleans up before the servers stop, so that the
// objects they store can be deleted in the ordinary way.
func (s *Stage) hold(ctx context.Context) error {
	servers, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	all := s.backends()
	failed := make(chan error, len(all))
	for _, server := range all {
		wg.Go(func() {
			if err := server.Run(servers); err != nil {
				failed <- err
			}
		})
	}
	defer s.cleanUp(context.WithoutCancel(ctx))
	for _, server := range all {
		select {
		case <-server.Ready():
		case err := <-failed:
			return err
		case <-time.After(startWithin):
			return fmt.Errorf("a server of the drill did not start within %s", startWithin)
		}
	}
	bounded, cancel := context.WithTimeoutCause(ctx, s.drill.Limit, errTooLong)
	defer cancel()
	return s.play(bounded)
}

func (s *Stage) play(ctx context.Context) error {
	s.progress("setting up")
	if err := s.createNamespace(ctx, s.Namespace); err != nil {
		return err
	}
	if err := s.setting.setUp(ctx); err != nil {
		return err
	}
	s.record.mark(func(t *Times) { t.Began = time.Now() })
	defer s.record.mark(func(t *Times) { t.Ended = time.Now() })
	clients, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer s.traffic.wait()
	defer stop()
	s.traffic.start(clients)
	wg.Go(func() { s.observe(clients) })
	wg.Go(func() { s.record.feelPulse(clients) })
	for _, p := range s.components() {
		if p.stores {
			wg.Go(func() { s.watch(clients, p) })
		}
	}
	return s.drill.script(ctx, s)
}

// cleanUp always runs, with a separate context. It makes all servers healthy first.
func (s *Stage) cleanUp(ctx context.Context) {
	s.progress("cleaning up")
	for _, server := range s.backends() {
		select {
		case <-server.Ready():
			if err := server.SetFault(faulty.Healthy); err != nil {
				s.progress(err.Error())
			}
		default: // it never listened
		}
	}
	left := s.clean(ctx)
	s.traffic.client.CloseIdleConnections()
	s.record.change(func(h *History) { h.Left = left })
}
