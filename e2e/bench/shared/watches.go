package shared

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// everySecond is the interval of the events of one stream. Streams that the backend serves directly have different
// offsets.
const everySecond = "1s"

// watches opens watches of one resource, and measures the cost of an event.
func (r *Report) watches(ctx context.Context, subjects []subject, backend *environment.Server, s Settings, say func(string, ...any)) error {
	watched := watchers(subjects)
	rows := make([]WatchRow, len(watched))
	for i, w := range watched {
		rows[i].Who = w.name
	}
	say("all of them are left alone")
	quiet, err := quietCPU(ctx, watched, s)
	if err != nil {
		return err
	}
	for round := range s.WatchRounds {
		for _, k := range order(len(watched), round) {
			say("round %d of %d: %d watches, %s", round+1, s.WatchRounds, s.Streams, watched[k].name)
			got, err := listen(ctx, watched[k], backend, s)
			if err != nil {
				return fmt.Errorf("%d watches, %s: %w", s.Streams, watched[k].name, err)
			}
			rows[k].deliveries = append(rows[k].deliveries, got)
		}
	}
	summarizeWatches(rows, quiet, s)
	r.Watches = rows
	return nil
}

// quietCPU returns the CPU per second of the servers without requests. An idle front door runs a complete API server
// with an etcd.
func quietCPU(ctx context.Context, watched []subject, s Settings) ([]time.Duration, error) {
	used := make([]time.Duration, len(watched))
	for i, w := range watched {
		before, err := measure.CPU(w.server.PID)
		if err != nil {
			return nil, err
		}
		used[i] = before
	}
	if err := environment.Pause(ctx, s.Watch); err != nil {
		return nil, err
	}
	for i, w := range watched {
		after, err := measure.CPU(w.server.PID)
		if err != nil {
			return nil, err
		}
		used[i] = time.Duration(float64(after-used[i]) / s.Watch.Seconds())
	}
	return used, nil
}

// watchers returns the subjects for watches: the bare proxy, and the front door without and with shared watches.
func watchers(subjects []subject) []subject {
	var out []subject
	for _, w := range subjects {
		if w.name == bare || w.name == alone || w.name == all {
			out = append(out, w)
		}
	}
	return out
}

func watchAsk(w subject, query string) environment.Ask {
	return environment.Ask{Method: http.MethodGet, Path: environment.Path(w.group) + "?watch=true" + query, Token: w.token, HTTP2: true}
}

func listen(ctx context.Context, w subject, backend *environment.Server, s Settings) (environment.Delivery, error) {
	streams, err := environment.Open(ctx, w.server, watchAsk(w, "&every="+everySecond), s.Streams)
	if err != nil {
		return environment.Delivery{}, err
	}
	defer streams.Close()
	return streams.Measure(ctx, backend, s.Watch/4, s.Watch)
}

// idleWatches opens many idle watches, through a separate front door for each kind, and measures the memory of each
// watch.
func (r *Report) idleWatches(ctx context.Context, y *environment.Environment, s Settings, say func(string, ...any)) error {
	for i, name := range []string{alone, all} {
		say("%d idle watches: %s", s.IdleStreams, name)
		program, err := y.Aggregator()
		if err != nil {
			return err
		}
		front, err := OpenFront(ctx, y, program, fmt.Sprintf("idle-%d", i), s.MaxAge)
		if err != nil {
			return err
		}
		w := subject{name, front.Server, environment.UserToken, []int{GroupAlone, GroupAll}[i]}
		each, peak, err := idle(ctx, w, s)
		if err != nil {
			return fmt.Errorf("%d idle watches, %s: %w", s.IdleStreams, name, err)
		}
		r.Idle = append(r.Idle, IdleRow{Who: name, Streams: s.IdleStreams, Each: each, Peak: peak})
		if err := front.Stop(); err != nil {
			return err
		}
	}
	return nil
}

// idle returns the bytes per watch, and the peak resident memory of the server.
func idle(ctx context.Context, w subject, s Settings) (each, peak float64, err error) {
	if err := environment.Pause(ctx, s.Rest); err != nil {
		return 0, 0, err
	}
	if err := measure.ResetPeakRSS(w.server.PID); err != nil {
		return 0, 0, err
	}
	before, err := measure.RSS(w.server.PID)
	if err != nil {
		return 0, 0, err
	}
	streams, err := environment.Open(ctx, w.server, watchAsk(w, ""), s.IdleStreams)
	if err != nil {
		return 0, 0, err
	}
	defer streams.Close()
	if err := environment.Pause(ctx, s.Rest); err != nil { // until temporary memory has been released
		return 0, 0, err
	}
	after, err := measure.RSS(w.server.PID)
	if err != nil {
		return 0, 0, err
	}
	highest, err := measure.PeakRSS(w.server.PID)
	if err != nil {
		return 0, 0, err
	}
	return float64(after-before) / float64(s.IdleStreams), float64(highest), streams.Broken()
}
