package scale

import (
	"context"
	"net/http"

	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// streams opens idle watches through a front door and through a bare proxy, and measures the cost of each watch.
func (r *Report) streams(ctx context.Context, y *environment.Environment, backend *environment.Server, s Settings, say func(string, ...any)) error {
	front, err := y.Front("front-streams")
	if err != nil {
		return err
	}
	if err := front.Grant(ctx); err != nil {
		return err
	}
	if err := front.Register(ctx, 0, 1); err != nil {
		return err
	}
	bare, err := y.Bare(true)
	if err != nil {
		return err
	}
	for _, w := range []struct {
		name   string
		server *environment.Server
	}{{"bare ReverseProxy, HTTP/2 out", bare}, {"front door, user by RBAC", front.Server}} {
		say("%d idle watches: %s", s.Streams, w.name)
		row, err := idle(ctx, w.server, s)
		if err != nil {
			return err
		}
		row.Who = w.name
		r.Streams = append(r.Streams, row)
	}
	return front.Stop()
}

func idle(ctx context.Context, server *environment.Server, s Settings) (StreamRow, error) {
	if err := environment.Pause(ctx, s.Rest/5); err != nil {
		return StreamRow{}, err
	}
	if err := measure.ResetPeakRSS(server.PID); err != nil {
		return StreamRow{}, err
	}
	before, err := measure.RSS(server.PID)
	if err != nil {
		return StreamRow{}, err
	}
	cpu, err := measure.CPU(server.PID)
	if err != nil {
		return StreamRow{}, err
	}
	ask := environment.Ask{Method: http.MethodGet, Path: environment.Path(0) + "?watch=true", Token: environment.UserToken, HTTP2: true}
	streams, err := environment.Open(ctx, server, ask, s.Streams)
	if err != nil {
		return StreamRow{}, err
	}
	defer streams.Close()
	opened, err := measure.CPU(server.PID)
	if err != nil {
		return StreamRow{}, err
	}
	if err := environment.Pause(ctx, s.Rest/3); err != nil {
		return StreamRow{}, err
	}
	after, err := measure.RSS(server.PID)
	if err != nil {
		return StreamRow{}, err
	}
	peak, err := measure.PeakRSS(server.PID)
	if err != nil {
		return StreamRow{}, err
	}
	return StreamRow{
		Streams: s.Streams, Each: float64(after-before) / float64(s.Streams), RSS: float64(after), Peak: float64(peak),
		CPU: float64((opened - cpu).Microseconds()) / float64(s.Streams),
	}, streams.Broken()
}
