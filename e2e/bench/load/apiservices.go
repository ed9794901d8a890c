package load

import (
	"context"
	"fmt"
	"time"

	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// APIServiceSettings are the settings for requests over many APIServices.
type APIServiceSettings struct {
	// Counts contains the number of APIServices of each front door. The first one is the reference. Registered is the
	// rate of registrations per second.
	Counts     []int
	Registered int
	// PerSecond is the total rate of requests.
	PerSecond int
	Rounds    int
	Cell      time.Duration
}

// APIServiceRow contains the results of a front door. CPU is in microseconds per request, memory in bytes.
type APIServiceRow struct {
	APIServices int            `json:"apiServices"`
	PerSecond   measure.Spread `json:"requestsPerSecond"`
	// CPU includes the idle CPU. Idle is the idle CPU in milliseconds per second. Own is CPU without Idle, over all
	// rounds.
	CPU  measure.Spread `json:"cpuUS"`
	Idle measure.Spread `json:"idleCPUms"`
	Own  float64        `json:"ownCPUus"`
	// Ratio and P99Ratio are relative to the first row in each round. OwnRatio is computed over all rounds.
	Ratio    measure.Spread `json:"cpuToFirst"`
	OwnRatio float64        `json:"ownCPUToFirst"`
	P50      measure.Spread `json:"p50ms"`
	P99      measure.Spread `json:"p99ms"`
	P99Ratio measure.Spread `json:"p99ToFirst"`
	Peak     float64        `json:"rssPeak"`

	stretches []environment.Interval
	idle      []float64 // share of a core
}

// withAPIServices is a front door with backends.
type withAPIServices struct {
	*environment.Front
	backends *environment.Server
	load     *environment.PacedLoad
	row      *APIServiceRow
}

// apiServices loads the front doors alternately, each over all its APIServices. While one is loaded, the others are
// measured idle.
func (r *Report) apiServices(ctx context.Context, y *environment.Environment, say func(string, ...any)) error {
	s := r.Settings.APIServices
	var all []*withAPIServices
	for i, count := range s.Counts {
		say("%d APIServices are registered", count)
		one, err := openAPIServices(ctx, y, fmt.Sprintf("front-%d", i), count, s.Registered)
		if err != nil {
			return err
		}
		defer one.load.Leave()
		r.APIServices = append(r.APIServices, one.row)
		all = append(all, one)
	}
	say("all of them rest")
	if err := environment.Pause(ctx, r.Settings.Rest); err != nil {
		return err
	}
	for round := range s.Rounds {
		for turn := range all {
			k := turn
			if round%2 == 1 {
				k = len(all) - 1 - turn
			}
			say("round %d of %d: %d APIServices", round+1, s.Rounds, all[k].row.APIServices)
			if err := measureOne(ctx, all, k, r.Settings.Warm, s); err != nil {
				return err
			}
		}
	}
	summarizeAPIServices(r.APIServices)
	return nil
}

func openAPIServices(ctx context.Context, y *environment.Environment, name string, count, perSecond int) (*withAPIServices, error) {
	front, err := y.Front(name)
	if err != nil {
		return nil, err
	}
	if err := front.Grant(ctx); err != nil {
		return nil, err
	}
	backends, own, err := y.OwnBackends(count)
	if err != nil {
		return nil, err
	}
	if err := front.RegisterOwn(ctx, own, perSecond); err != nil {
		return nil, err
	}
	load, err := environment.NewPacedLoad(front.Server, small, pathsOf(count), 8)
	if err != nil {
		return nil, err
	}
	one := &withAPIServices{Front: front, backends: backends, load: load, row: &APIServiceRow{APIServices: count}}
	if err := load.Connect(ctx); err != nil {
		load.Leave()
		return nil, err
	}
	return one, nil
}

// measureOne loads one front door, and measures the idle CPU of the others at the same time.
func measureOne(ctx context.Context, all []*withAPIServices, k int, warm time.Duration, s APIServiceSettings) error {
	before := make([]time.Duration, len(all))
	var err error
	for i, one := range all {
		if before[i], err = measure.CPU(one.PID); err != nil {
			return err
		}
	}
	began := time.Now()
	got, err := all[k].load.Measure(ctx, all[k].backends, s.PerSecond, warm, s.Cell)
	if err != nil {
		return err
	}
	all[k].row.stretches = append(all[k].row.stretches, got)
	for i, one := range all {
		after, err := measure.CPU(one.PID)
		if err != nil {
			return err
		}
		if i != k {
			one.row.idle = append(one.row.idle, float64(after-before[i])/float64(time.Since(began)))
		}
	}
	return nil
}

func summarizeAPIServices(rows []*APIServiceRow) {
	first := rows[0]
	cpu := func(s environment.Interval) float64 { return us(s.Server) }
	p99 := func(s environment.Interval) float64 { return ms(s.P99) }
	for _, row := range rows {
		row.CPU, row.P99 = measure.Of(row.stretches, cpu), measure.Of(row.stretches, p99)
		row.P50 = measure.Of(row.stretches, func(s environment.Interval) float64 { return ms(s.P50) })
		row.PerSecond = measure.Of(row.stretches, func(s environment.Interval) float64 { return s.PerSecond })
		row.Ratio, row.P99Ratio = measure.Ratio(row.stretches, first.stretches, cpu), measure.Ratio(row.stretches, first.stretches, p99)
		row.Idle = measure.Of(row.idle, func(share float64) float64 { return share * 1000 })
		row.Own = ownCPU(row.stretches, row.Idle.Median/1000)
		row.OwnRatio = row.Own / first.Own
		for _, s := range row.stretches {
			row.Peak = max(row.Peak, float64(s.Peak))
		}
	}
}

// ownCPU returns the CPU in microseconds per request, over all intervals, without the share of a core that the idle
// server uses.
func ownCPU(stretches []environment.Interval, share float64) float64 {
	var total, lasted float64 // seconds
	requests := 0
	for _, s := range stretches {
		total += s.Server.Seconds() * float64(s.Requests)
		lasted += float64(s.Requests) / s.PerSecond
		requests += s.Requests
	}
	return (total - share*lasted) * 1e6 / float64(requests)
}
