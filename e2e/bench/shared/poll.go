package shared

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// poll contains the results of the pollers of one server.
type poll struct {
	requests        int
	backendRequests float64
	lasted          time.Duration
	p50, p99        time.Duration
	server, backend time.Duration // CPU
	peak            int64         // resident memory of the server
}

// pollers runs clients with separate connections that poll the same long list at the same interval, with different
// offsets.
func (r *Report) pollers(ctx context.Context, subjects []subject, backend *environment.Server, s Settings, say func(string, ...any)) error {
	polled := slices.DeleteFunc(slices.Clone(subjects), func(w subject) bool { return w.name == same || isFloor(w) })
	polls := make([][]poll, len(polled))
	for round := range s.PollRounds {
		for _, k := range order(len(polled), round) {
			say("round %d of %d: %d pollers, %s", round+1, s.PollRounds, s.Pollers, polled[k].name)
			got, err := pollOnce(ctx, polled[k], backend, s)
			if err != nil {
				return fmt.Errorf("pollers, %s: %w", polled[k].name, err)
			}
			polls[k] = append(polls[k], got)
		}
	}
	for k, w := range polled {
		r.Polls = append(r.Polls, summarizePolls(w.name, polls[k], polls[0], s))
	}
	return nil
}

func pollOnce(ctx context.Context, w subject, backend *environment.Server, s Settings) (p poll, err error) {
	if err := measure.ResetPeakRSS(w.server.PID); err != nil {
		return p, err
	}
	pids := [2]int{w.server.PID, backend.PID}
	var was, is [2]time.Duration
	before, err := backend.Requests()
	if err != nil {
		return p, err
	}
	for i, pid := range pids {
		if was[i], err = measure.CPU(pid); err != nil {
			return p, err
		}
	}
	began := time.Now()
	took := make([][]time.Duration, s.Pollers)
	errs := make([]error, s.Pollers)
	var polling sync.WaitGroup
	for i := range s.Pollers {
		polling.Go(func() { took[i], errs[i] = pollAs(ctx, w, time.Duration(i)*s.Every/time.Duration(s.Pollers), s) })
	}
	polling.Wait()
	p.lasted = time.Since(began)
	for _, err := range errs {
		if err != nil {
			return p, err
		}
	}
	for i, pid := range pids {
		if is[i], err = measure.CPU(pid); err != nil {
			return p, err
		}
	}
	after, err := backend.Requests()
	if err != nil {
		return p, err
	}
	delays := slices.Concat(took...)
	slices.Sort(delays)
	p.requests, p.backendRequests = len(delays), after-before
	p.p50, p.p99 = measure.Quantile(delays, 0.5), measure.Quantile(delays, 0.99)
	p.server, p.backend = is[0]-was[0], is[1]-was[1]
	p.peak, err = measure.PeakRSS(w.server.PID)
	return p, err
}

// pollAs runs one poller.
func pollAs(ctx context.Context, w subject, offset time.Duration, s Settings) (took []time.Duration, err error) {
	client, err := environment.NewClient(w.server, true)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	began := time.Now()
	for at := offset; at < s.PollFor; at += s.Every {
		if err := environment.Pause(ctx, time.Until(began.Add(at))); err != nil {
			return nil, err
		}
		start := time.Now()
		if err := list(ctx, client, w); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
	return took, nil
}

func list(ctx context.Context, client *http.Client, w subject) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := environment.NewRequest(ctx, w.server, environment.Ask{Method: http.MethodGet, Path: environment.PodMetricsPath(w.group), Token: w.token}, "")
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // the body was read to its end, or there is an error already
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // may contain an explanation
		return fmt.Errorf("%s: %s", resp.Status, text)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
