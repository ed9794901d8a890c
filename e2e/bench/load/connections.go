package load

import (
	"context"
	"fmt"
	"slices"
	"time"

	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// ConnectionSettings are the settings for many client connections.
type ConnectionSettings struct {
	// Counts contains the numbers of connections. The first one is the reference.
	Counts []int
	// PerSecond is the total rate of requests over all connections.
	PerSecond int
	Cell      time.Duration
}

// ConnectionRow contains the results of a server with a number of connections. CPU is in microseconds, memory in
// bytes.
type ConnectionRow struct {
	Who         string  `json:"server"`
	Connections int     `json:"connections"`
	PerSecond   float64 `json:"requestsPerSecond"`
	// CPU is per request. Ratio is relative to the server's first row.
	CPU   float64 `json:"cpuUS"`
	Ratio float64 `json:"cpuToFirst"`
	P50   float64 `json:"p50ms"`
	P99   float64 `json:"p99ms"`
	// Peak is the peak resident memory while the connections were open and used. Each is its growth since before they
	// were opened, per connection.
	Peak float64 `json:"rssPeak"`
	Each float64 `json:"bytesEach"`
	// Opening is the CPU of the first request of a connection, including the handshake.
	Opening float64 `json:"openingCPUus"`
}

// descriptorsBeside is the number of file descriptors for all other files of a process.
const descriptorsBeside = 1000

// connections loads a bare proxy and a front door at the same rate over few and over many connections.
func (r *Report) connections(ctx context.Context, y *environment.Environment, say func(string, ...any)) error {
	s := r.Settings.Connections
	if err := measure.CheckDescriptors(slices.Max(s.Counts) + descriptorsBeside); err != nil {
		return err
	}
	backend, err := y.Backend()
	if err != nil {
		return err
	}
	bare, err := y.Bare(true)
	if err != nil {
		return err
	}
	front, err := y.Front("front")
	if err != nil {
		return err
	}
	if err := front.Grant(ctx); err != nil {
		return err
	}
	if err := front.Register(ctx, 0, 1); err != nil {
		return err
	}
	if err := environment.Pause(ctx, r.Settings.Rest/3); err != nil {
		return err
	}
	for _, w := range []struct {
		name   string
		server *environment.Server
	}{{"bare ReverseProxy, HTTP/2 out", bare}, {"front door, user by RBAC", front.Server}} {
		var first *ConnectionRow
		for _, count := range s.Counts {
			say("%d connections, %s", count, w.name)
			row, err := connect(ctx, w.server, backend, count, r.Settings.Warm, s)
			if err != nil {
				return fmt.Errorf("%d connections: %w", count, err)
			}
			if first == nil {
				first = row
			}
			row.Who, row.Ratio = w.name, row.CPU/first.CPU
			r.Connections = append(r.Connections, row)
		}
	}
	return nil
}

// connect opens connections, measures requests over them, and closes them.
func connect(ctx context.Context, server, backend *environment.Server, count int, warm time.Duration, s ConnectionSettings) (*ConnectionRow, error) {
	load, err := environment.NewPacedLoad(server, small, pathsOf(1), count)
	if err != nil {
		return nil, err
	}
	defer load.Leave()
	before, err := measure.RSS(server.PID)
	if err != nil {
		return nil, err
	}
	opening, err := used(server, func() error { return load.Connect(ctx) })
	if err != nil {
		return nil, err
	}
	got, err := load.Measure(ctx, backend, s.PerSecond, warm, s.Cell)
	return &ConnectionRow{
		Connections: count, PerSecond: got.PerSecond, CPU: us(got.Server), P50: ms(got.P50), P99: ms(got.P99), Peak: float64(got.Peak),
		Each: float64(got.Peak-before) / float64(count), Opening: us(opening) / float64(count),
	}, err
}
