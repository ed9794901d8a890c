package proxied

import (
	"slices"
	"time"

	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// Report contains the results.
type Report struct {
	Machine measure.Machine `json:"machine"`
	Rounds  int             `json:"rounds"`
	Cell    time.Duration   `json:"cellNanoseconds"`
	Took    time.Duration   `json:"tookNanoseconds"`
	// Idle is the CPU in microseconds per second without requests.
	Idle    map[string]float64 `json:"idleCPUusPerSecond"`
	Rows    []Row              `json:"requests"`
	Watches []WatchRow         `json:"watches"`
	Options []Row              `json:"options"`
}

// Row contains the results of one server in one cell. Latency is in milliseconds, CPU in microseconds per request,
// which equals milliseconds per thousand requests.
type Row struct {
	Cell
	Who         string         `json:"server"`
	PerSecond   measure.Spread `json:"requestsPerSecond"`
	P50         measure.Spread `json:"p50ms"`
	P99         measure.Spread `json:"p99ms"`
	CPU         measure.Spread `json:"serverCPUus"`
	BackendCPU  measure.Spread `json:"backendCPUus"`
	ClientCPU   measure.Spread `json:"clientCPUus"`
	Allocations measure.Spread `json:"serverAllocations"`
	Peak        measure.Spread `json:"serverPeakMiB"`
	// The ratios are relative to the bare proxies: CPU to each of them, p99 to the one with HTTP/2.
	CPUToH2 measure.Spread `json:"cpuToBareHTTP2"`
	CPUToH1 measure.Spread `json:"cpuToBareHTTP1"`
	P99ToH2 measure.Spread `json:"p99ToBareHTTP2"`
	// Ratios relative to nginx, if it is installed.
	CPUToNginx measure.Spread `json:"cpuToNginx,omitzero"`
	P99ToNginx measure.Spread `json:"p99ToNginx,omitzero"`

	stretches []environment.Interval
}

// WatchRow contains the results of one server with watches. CPU is per event.
type WatchRow struct {
	WatchCell
	Who string         `json:"server"`
	P50 measure.Spread `json:"p50ms"`
	P99 measure.Spread `json:"p99ms"`
	CPU measure.Spread `json:"serverCPUus"`
	// Own is CPU without the idle CPU of the server in the same time.
	Own        measure.Spread `json:"serverCPUusWithoutIdle"`
	BackendCPU measure.Spread `json:"backendCPUus"`
	ClientCPU  measure.Spread `json:"clientCPUus"`
	Peak       measure.Spread `json:"serverPeakMiB"`
	OwnToH2    measure.Spread `json:"cpuWithoutIdleToBareHTTP2"`
	CPUToH2    measure.Spread `json:"cpuToBareHTTP2"`
	CPUToH1    measure.Spread `json:"cpuToBareHTTP1"`

	deliveries []environment.Delivery
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func mib(n int64) float64        { return float64(n) / (1 << 20) }

// The indexes of the bare proxies among the servers.
const (
	placeH2 = 1
	placeH1 = 2
)

func summarize(rows []Row) { summarizeAgainst(rows, placeH2, placeH1) }

// summarizeAgainst computes the rows of one cell. h2 and h1 are the indexes of the rows that the ratios refer to.
func summarizeAgainst(rows []Row, h2, h1 int) {
	beside := slices.IndexFunc(rows, func(r Row) bool { return r.Who == nginx })
	p99 := func(s environment.Interval) float64 { return ms(s.P99) }
	for i := range rows {
		row := &rows[i]
		of := func(number func(environment.Interval) float64) measure.Spread {
			return measure.Of(row.stretches, number)
		}
		row.PerSecond = of(func(s environment.Interval) float64 { return s.PerSecond })
		row.P50 = of(func(s environment.Interval) float64 { return ms(s.P50) })
		row.P99 = of(p99)
		row.CPU = of(serverCPU)
		row.BackendCPU = of(func(s environment.Interval) float64 { return us(s.Backend) })
		row.ClientCPU = of(func(s environment.Interval) float64 { return us(s.Client) })
		row.Allocations = of(func(s environment.Interval) float64 { return s.Allocations })
		row.Peak = of(func(s environment.Interval) float64 { return mib(s.Peak) })
		row.CPUToH2 = measure.Ratio(row.stretches, rows[h2].stretches, serverCPU)
		row.CPUToH1 = measure.Ratio(row.stretches, rows[h1].stretches, serverCPU)
		row.P99ToH2 = measure.Ratio(row.stretches, rows[h2].stretches, p99)
		if beside >= 0 {
			row.CPUToNginx = measure.Ratio(row.stretches, rows[beside].stretches, serverCPU)
			row.P99ToNginx = measure.Ratio(row.stretches, rows[beside].stretches, p99)
		}
	}
}

func serverCPU(s environment.Interval) float64 { return us(s.Server) }

func summarizeWatches(rows []WatchRow, idle map[string]float64, lasted time.Duration) {
	own := func(of string) func(environment.Delivery) float64 {
		return func(d environment.Delivery) float64 {
			return us(d.Server) - idle[of]*lasted.Seconds()/float64(d.Events)
		}
	}
	for i := range rows {
		row := &rows[i]
		row.Own = measure.Of(row.deliveries, own(row.Who))
		var ratios []float64
		for round, d := range row.deliveries {
			ratios = append(ratios, own(row.Who)(d)/own(rows[placeH2].Who)(rows[placeH2].deliveries[round]))
		}
		row.OwnToH2 = measure.SpreadOf(ratios)
		of := func(number func(environment.Delivery) float64) measure.Spread {
			return measure.Of(row.deliveries, number)
		}
		row.P50 = of(func(d environment.Delivery) float64 { return ms(d.P50) })
		row.P99 = of(func(d environment.Delivery) float64 { return ms(d.P99) })
		row.CPU = of(deliveryCPU)
		row.BackendCPU = of(func(d environment.Delivery) float64 { return us(d.Backend) })
		row.ClientCPU = of(func(d environment.Delivery) float64 { return us(d.Client) })
		row.Peak = of(func(d environment.Delivery) float64 { return mib(d.Peak) })
		row.CPUToH2 = measure.Ratio(row.deliveries, rows[placeH2].deliveries, deliveryCPU)
		row.CPUToH1 = measure.Ratio(row.deliveries, rows[placeH1].deliveries, deliveryCPU)
	}
}

func deliveryCPU(d environment.Delivery) float64 { return us(d.Server) }
