package incumbent

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// RegistrationRow contains the results of one side with a number of APIServices.
type RegistrationRow struct {
	Who         string `json:"side"`
	APIServices int    `json:"apiServices"`
	// Parts contains the results of each process. The other fields are sums over the processes.
	Parts []Part `json:"processes"`
	// RSS is in bytes, IdleCPU in seconds per minute without requests. Peak is the sum of the peaks of the processes
	// since their starts.
	RSS     float64 `json:"rss"`
	Peak    float64 `json:"rssPeak"`
	IdleCPU float64 `json:"idleCPUSecondsPerMinute"`
	// APIs is the latency of an aggregated /apis in milliseconds, APIsCPU its CPU in the API server in microseconds,
	// APIsBytes its size.
	APIs       measure.Spread `json:"apisMS"`
	APIsCPU    measure.Spread `json:"apisCPUus"`
	APIsBytes  int64          `json:"apisBytes"`
	Registered time.Duration  `json:"registeredNanoseconds"`
	// Appeared is the time in milliseconds from the creation of an APIService to its first response.
	Appeared measure.Spread `json:"appearedMS"`
}

// Part contains the results of one process.
type Part struct {
	Name    string  `json:"process"`
	RSS     float64 `json:"rss"`
	IdleCPU float64 `json:"idleCPUSecondsPerMinute"`
}

// registrations is a side with registered APIServices.
type registrations struct {
	*environment.FrontDoor
	parts      []process
	row        RegistrationRow
	apis, cpus []float64
}

func (g *rig) registrations(ctx context.Context, count int) ([]*registrations, error) {
	g.say("starting both sides for %d APIServices", count)
	ours, theirs, parts, err := g.sides(ctx, fmt.Sprintf("with-%d", count))
	if err != nil {
		return nil, err
	}
	return []*registrations{
		{FrontDoor: ours.FrontDoor, parts: parts[0], row: RegistrationRow{Who: oursName, APIServices: count}},
		{FrontDoor: theirs.FrontDoor, parts: parts[1], row: RegistrationRow{Who: kubernetesName, APIServices: count}},
	}, nil
}

func (p *registrations) fill(ctx context.Context) error {
	began := time.Now()
	if err := p.Register(ctx, 0, p.row.APIServices); err != nil {
		return err
	}
	p.row.Registered = time.Since(began)
	return nil
}

// leaveAlone measures the resources of all sides without requests.
func (g *rig) leaveAlone(ctx context.Context, all []*registrations) error {
	g.say("all of them rest for %s, while backends of others die", g.Rest)
	if err := environment.Pause(ctx, g.Rest); err != nil {
		return err
	}
	var of []*environment.Server
	for _, p := range all {
		for _, part := range p.parts {
			of = append(of, part.Server)
		}
	}
	g.say("all of them are left alone for %s, while backends of others die", g.Idle)
	used, err := cpuOf(ctx, g.Idle, of...)
	if err != nil {
		return err
	}
	for _, p := range all {
		for _, part := range p.parts {
			rss, err := measure.RSS(part.PID)
			if err != nil {
				return err
			}
			one := Part{Name: part.name, RSS: float64(rss), IdleCPU: used[0].Seconds() * time.Minute.Seconds()}
			p.row.Parts, used = append(p.row.Parts, one), used[1:]
			p.row.RSS += one.RSS
			peak, err := measure.PeakRSS(part.PID)
			if err != nil {
				return err
			}
			p.row.Peak += float64(peak)
			p.row.IdleCPU += one.IdleCPU
		}
	}
	return nil
}

// cpuOf returns the CPU time per second of each server while d passes.
func cpuOf(ctx context.Context, d time.Duration, of ...*environment.Server) ([]time.Duration, error) {
	used := make([]time.Duration, len(of))
	began := time.Now()
	for i, s := range of {
		before, err := measure.CPU(s.PID)
		if err != nil {
			return nil, err
		}
		used[i] = -before
	}
	if err := environment.Pause(ctx, d); err != nil {
		return nil, err
	}
	for i, s := range of {
		after, err := measure.CPU(s.PID)
		if err != nil {
			return nil, err
		}
		used[i] = time.Duration(float64(used[i]+after) / time.Since(began).Seconds())
	}
	return used, nil
}

const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// askWhatThereIs measures discovery on all sides alternately.
func (g *rig) askWhatThereIs(ctx context.Context, all []*registrations) error {
	ask := environment.Ask{Method: http.MethodGet, Path: "/apis", Accept: aggregatedType, Token: environment.AdminToken, HTTP2: true, Clients: 1}
	for round := range g.Rounds {
		for _, k := range order(len(all), round) {
			p := all[k]
			g.say("round %d of %d: /apis with %d APIServices, %s", round+1, g.Rounds, p.row.APIServices, p.row.Who)
			got, err := askFor(ctx, g, p.Server, ask)
			if err != nil {
				return err
			}
			p.apis, p.cpus = append(p.apis, ms(got.P50)), append(p.cpus, us(got.Server))
		}
	}
	for _, p := range all {
		p.row.APIs, p.row.APIsCPU = measure.SpreadOf(p.apis), measure.SpreadOf(p.cpus)
		var err error
		if p.row.APIsBytes, err = size(ctx, p.Server, ask); err != nil {
			return err
		}
	}
	return nil
}

func size(ctx context.Context, s *environment.Server, ask environment.Ask) (int64, error) {
	client, err := environment.NewClient(s, true)
	if err != nil {
		return 0, err
	}
	defer client.CloseIdleConnections()
	r, err := environment.NewRequest(ctx, s, ask, "")
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return io.Copy(io.Discard, resp.Body)
}

// appear creates APIServices and measures the time until each responds.
func (p *registrations) appear(ctx context.Context, count int) error {
	client, err := environment.NewClient(p.Server, true)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	var took []float64
	for n := range count {
		d, err := p.Appear(ctx, client, 90_000+n) // beyond the existing numbers
		if err != nil {
			return err
		}
		took = append(took, ms(d))
	}
	p.row.Appeared = measure.SpreadOf(took)
	return nil
}
