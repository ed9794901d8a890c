package incumbent

import (
	"context"
	"fmt"

	"portico.dev/e2e/bench/proxied"
	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// ProxiedRow contains the results of one server in one cell. Latency is in milliseconds, CPU in microseconds per
// request, which equals milliseconds per thousand requests.
type ProxiedRow struct {
	proxied.Cell
	Who        string         `json:"server"`
	CPU        measure.Spread `json:"serverCPUus"`
	PerSecond  measure.Spread `json:"requestsPerSecond"`
	P50        measure.Spread `json:"p50ms"`
	P99        measure.Spread `json:"p99ms"`
	BackendCPU measure.Spread `json:"backendCPUus"`
	Peak       measure.Spread `json:"serverPeakMiB"`
	// The ratios are Portico to kube-apiserver for the same user. They are zero in other rows.
	CPUToTheirs measure.Spread `json:"cpuToTheirs"`
	P50ToTheirs measure.Spread `json:"p50ToTheirs"`
	P99ToTheirs measure.Spread `json:"p99ToTheirs"`

	stretches []environment.Interval
}

// WatchRow contains the results of one server with watches. CPU is in microseconds per event.
type WatchRow struct {
	proxied.WatchCell
	Who  string         `json:"server"`
	P50  measure.Spread `json:"p50ms"`
	P99  measure.Spread `json:"p99ms"`
	CPU  measure.Spread `json:"serverCPUus"`
	Peak measure.Spread `json:"serverPeakMiB"`
	// ratios as in ProxiedRow
	CPUToTheirs measure.Spread `json:"cpuToTheirs"`
	P99ToTheirs measure.Spread `json:"p99ToTheirs"`

	deliveries []environment.Delivery
}

// who is a server and a user. against is the index of the entry to compare with, or its own index.
type who struct {
	name    string
	server  *environment.Server
	token   string
	against int
}

func (r *Report) proxied(ctx context.Context, g *rig, ours *environment.Front, theirs *environment.Incumbent) error {
	bare, err := g.y.Bare(true)
	if err != nil {
		return err
	}
	all := []who{
		{"straight to the backend", g.backend, "", 0},
		{"bare ReverseProxy", bare, "", 1},
		{"Portico, administrator", ours.Server, environment.AdminToken, 4},
		{"Portico, user by RBAC", ours.Server, environment.UserToken, 5},
		{"kube-apiserver, administrator", theirs.Server, environment.AdminToken, 4},
		{"kube-apiserver, user by RBAC", theirs.Server, environment.UserToken, 5},
	}
	if err := r.proxiedRequests(ctx, g, all); err != nil {
		return err
	}
	return r.watches(ctx, g, all)
}

func (r *Report) proxiedRequests(ctx context.Context, g *rig, all []who) error {
	cells := proxied.Cells()
	for _, c := range cells {
		for _, w := range all {
			r.Proxied = append(r.Proxied, ProxiedRow{Cell: c, Who: w.name})
		}
	}
	for round := range g.Rounds {
		for i, c := range cells {
			for _, k := range order(len(all), round) {
				g.say("round %d of %d: %s, %s", round+1, g.Rounds, c, all[k].name)
				got, err := askFor(ctx, g, all[k].server, c.Load(all[k].token))
				if err != nil {
					return fmt.Errorf("%s: %w", c, err)
				}
				row := &r.Proxied[i*len(all)+k]
				row.stretches = append(row.stretches, got)
			}
		}
	}
	for i := range cells {
		summarizeProxied(r.Proxied[i*len(all):][:len(all)], all)
	}
	return nil
}

func askFor(ctx context.Context, g *rig, s *environment.Server, ask environment.Ask) (environment.Interval, error) {
	generator, err := environment.NewLoadGenerator(s, ask)
	if err != nil {
		return environment.Interval{}, err
	}
	defer generator.Leave()
	return generator.Measure(ctx, g.backend, g.Warm, g.Cell)
}

// summarizeProxied computes the rows of one cell.
func summarizeProxied(rows []ProxiedRow, all []who) {
	cpu := func(s environment.Interval) float64 { return us(s.Server) }
	p50 := func(s environment.Interval) float64 { return ms(s.P50) }
	p99 := func(s environment.Interval) float64 { return ms(s.P99) }
	for i := range rows {
		row := &rows[i]
		row.CPU, row.P50, row.P99 = measure.Of(row.stretches, cpu), measure.Of(row.stretches, p50), measure.Of(row.stretches, p99)
		row.PerSecond = measure.Of(row.stretches, func(s environment.Interval) float64 { return s.PerSecond })
		row.BackendCPU = measure.Of(row.stretches, func(s environment.Interval) float64 { return us(s.Backend) })
		row.Peak = measure.Of(row.stretches, func(s environment.Interval) float64 { return mib(s.Peak) })
		if other := all[i].against; other != i {
			row.CPUToTheirs = measure.Ratio(row.stretches, rows[other].stretches, cpu)
			row.P50ToTheirs = measure.Ratio(row.stretches, rows[other].stretches, p50)
			row.P99ToTheirs = measure.Ratio(row.stretches, rows[other].stretches, p99)
		}
	}
}

func (r *Report) watches(ctx context.Context, g *rig, all []who) error {
	for _, c := range proxied.WatchCells() {
		rows := make([]WatchRow, len(all))
		for i, w := range all {
			rows[i] = WatchRow{WatchCell: c, Who: w.name}
		}
		for round := range g.WatchRounds {
			for _, k := range order(len(all), round) {
				g.say("round %d of %d: %d watches, %s, %s", round+1, g.WatchRounds, c.Streams, proxied.Protocol(c.HTTP2), all[k].name)
				got, err := listen(ctx, g, all[k], c)
				if err != nil {
					return fmt.Errorf("%d watches, %s: %w", c.Streams, proxied.Protocol(c.HTTP2), err)
				}
				rows[k].deliveries = append(rows[k].deliveries, got)
			}
		}
		summarizeWatches(rows, all)
		r.Watches = append(r.Watches, rows...)
	}
	return nil
}

func listen(ctx context.Context, g *rig, w who, c proxied.WatchCell) (environment.Delivery, error) {
	streams, err := environment.Open(ctx, w.server, c.Load(w.token), c.Streams)
	if err != nil {
		return environment.Delivery{}, err
	}
	defer streams.Close()
	return streams.Measure(ctx, g.backend, g.Watch/4, g.Watch)
}

func summarizeWatches(rows []WatchRow, all []who) {
	cpu := func(d environment.Delivery) float64 { return us(d.Server) }
	p99 := func(d environment.Delivery) float64 { return ms(d.P99) }
	for i := range rows {
		row := &rows[i]
		row.CPU, row.P99 = measure.Of(row.deliveries, cpu), measure.Of(row.deliveries, p99)
		row.P50 = measure.Of(row.deliveries, func(d environment.Delivery) float64 { return ms(d.P50) })
		row.Peak = measure.Of(row.deliveries, func(d environment.Delivery) float64 { return mib(d.Peak) })
		if other := all[i].against; other != i {
			row.CPUToTheirs = measure.Ratio(row.deliveries, rows[other].deliveries, cpu)
			row.P99ToTheirs = measure.Ratio(row.deliveries, rows[other].deliveries, p99)
		}
	}
}
