package incumbent

import (
	"fmt"
	"time"

	"portico.dev/e2e/bench/proxied"
	"portico.dev/e2e/measure"
)

// Report contains the results.
type Report struct {
	Machine measure.Machine `json:"machine"`
	// Version of kube-apiserver.
	Version       string            `json:"kubeAPIServer"`
	Settings      Settings          `json:"settings"`
	Took          time.Duration     `json:"tookNanoseconds"`
	Proxied       []ProxiedRow      `json:"proxied"`
	Watches       []WatchRow        `json:"watches"`
	Local         []LocalRow        `json:"local"`
	Registrations []RegistrationRow `json:"registrations"`
	Faults        []FaultRow        `json:"faults"`
	Start         Start             `json:"start"`
	Programs      []Program         `json:"programs"`
}

// Ratio is Portico to kube-apiserver in one row of a table.
type Ratio struct {
	What, Line string
	Spread     measure.Spread
}

// Ratios returns all ratios of the tables, except those for registrations and faults.
func (r *Report) Ratios() []Ratio {
	var all []Ratio
	add := func(what, line string, s measure.Spread) {
		if s != (measure.Spread{}) {
			all = append(all, Ratio{what, line, s})
		}
	}
	for _, row := range r.Proxied {
		line := row.Cell.String() + ", " + row.Who
		add("CPU of a proxied request", line, row.CPUToTheirs)
		add("p50 of a proxied request", line, row.P50ToTheirs)
		add("p99 of a proxied request", line, row.P99ToTheirs)
	}
	for _, row := range r.Watches {
		line := fmt.Sprintf("%d watches, %s, %s", row.Streams, proxied.Protocol(row.HTTP2), row.Who)
		add("CPU of a proxied watch event", line, row.CPUToTheirs)
		add("p99 of a proxied watch event", line, row.P99ToTheirs)
	}
	for _, row := range r.Local {
		line := fmt.Sprintf("%s, %d at once, %s", row.Name, row.Clients, row.Who)
		add("CPU of a local operation, the API server alone", line, row.CPUToTheirs)
		add("CPU of a local operation, with etcd", line, row.AllToTheirs)
		add("p50 of a local operation", line, row.P50ToTheirs)
		add("p99 of a local operation", line, row.P99ToTheirs)
	}
	for i := 0; i+1 < len(r.Registrations); i += 2 {
		ours, theirs := r.Registrations[i], r.Registrations[i+1]
		line := fmt.Sprintf("%d APIServices", ours.APIServices)
		once := func(what string, number func(RegistrationRow) float64) {
			if of := number(theirs); of > 0 {
				add(what, line, measure.SpreadOf([]float64{number(ours) / of}))
			}
		}
		once("memory at rest, all processes", func(r RegistrationRow) float64 { return r.RSS })
		once("idle CPU, all processes", func(r RegistrationRow) float64 { return r.IdleCPU })
		once("p50 of an aggregated /apis", func(r RegistrationRow) float64 { return r.APIs.Median })
		once("CPU of an aggregated /apis", func(r RegistrationRow) float64 { return r.APIsCPU.Median })
		once("bytes of an aggregated /apis", func(r RegistrationRow) float64 { return float64(r.APIsBytes) })
		if ours.APIServices > 0 {
			once("registering all", func(r RegistrationRow) float64 { return r.Registered.Seconds() })
		}
		once("a new APIService until its first answer", func(r RegistrationRow) float64 { return r.Appeared.Median })
	}
	add("start", fmt.Sprintf("%d starts", r.Start.HowOften), r.Start.ToTheirs)
	return all
}

// Range is the range of the median ratios of one figure.
type Range struct {
	What           string
	Lines          int
	Least, Most    float64
	Worst          string
	Cheaper, Noisy int // rows in which kube-apiserver uses less, and how many of these are within the noise
}

// Ranges returns one entry for each figure.
func (r *Report) Ranges() []Range {
	var all []Range
	place := map[string]int{}
	for _, ratio := range r.Ratios() {
		i, ok := place[ratio.What]
		if !ok {
			i = len(all)
			place[ratio.What] = i
			all = append(all, Range{What: ratio.What, Least: ratio.Spread.Median})
		}
		g := &all[i]
		g.Lines++
		g.Least = min(g.Least, ratio.Spread.Median)
		if ratio.Spread.Median > g.Most {
			g.Most, g.Worst = ratio.Spread.Median, ratio.Line
		}
		if ratio.Spread.Median > 1 {
			g.Cheaper++
			if ratio.Spread.Min <= 1 {
				g.Noisy++
			}
		}
	}
	return all
}

// Behind returns the ratios of the rows in which kube-apiserver uses less.
func (r *Report) Behind() []Ratio {
	var all []Ratio
	for _, ratio := range r.Ratios() {
		if ratio.Spread.Median > 1 {
			all = append(all, ratio)
		}
	}
	return all
}
