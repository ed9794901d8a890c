package gateway

import (
	"bytes"
	"fmt"
	"slices"
	"text/template"
	"time"

	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// Report contains the results.
type Report struct {
	Machine measure.Machine `json:"machine"`
	// Version of kube-apiserver.
	Version  string        `json:"kubeAPIServer"`
	Settings Settings      `json:"settings"`
	Took     time.Duration `json:"tookNanoseconds"`
	Requests []Row         `json:"requests"`
	Watches  []WatchRow    `json:"watches"`
	Idle     []IdleRow     `json:"idle"`
}

// Row contains the results of one path in one cell. CPU is in microseconds per request, latency in milliseconds. The
// hop is the process between kube-apiserver and the backend. Without a hop, its values are zero.
type Row struct {
	Cell
	Way           string         `json:"through"`
	HopCPU        measure.Spread `json:"hopCPUus"`
	KubeAPIServer measure.Spread `json:"kubeAPIServerCPUus"`
	PerSecond     measure.Spread `json:"requestsPerSecond"`
	P50           measure.Spread `json:"p50ms"`
	P99           measure.Spread `json:"p99ms"`
	// HopToBare is the ratio of the hop's CPU to the bare proxy's. The other ratios are relative to the path without
	// a hop.
	HopToBare      measure.Spread `json:"hopCPUToBare"`
	KubeToDirectly measure.Spread `json:"kubeAPIServerCPUToNoHop"`
	P50ToDirectly  measure.Spread `json:"p50ToNoHop"`
	P99ToDirectly  measure.Spread `json:"p99ToNoHop"`
	HopPeak        measure.Spread `json:"hopPeakMiB"`

	intervals []environment.Interval
}

// WatchRow contains the results of one path with watches. CPU is in microseconds per event and client.
type WatchRow struct {
	Way            string         `json:"through"`
	Streams        int            `json:"watches"`
	HopCPU         measure.Spread `json:"hopCPUus"`
	KubeAPIServer  measure.Spread `json:"kubeAPIServerCPUus"`
	P50            measure.Spread `json:"p50ms"`
	P99            measure.Spread `json:"p99ms"`
	HopPeak        measure.Spread `json:"hopPeakMiB"`
	HopToBare      measure.Spread `json:"hopCPUToBare"`
	KubeToDirectly measure.Spread `json:"kubeAPIServerCPUToNoHop"`

	deliveries []environment.Delivery
}

// IdleRow contains CPU in milliseconds per second, and the gateway's memory in MiB, without requests.
type IdleRow struct {
	Who           string  `json:"who"`
	KubeAPIServer float64 `json:"kubeAPIServerCPUmsPerSecond"`
	Gateway       float64 `json:"gatewayCPUmsPerSecond"`
	RSS           float64 `json:"gatewayRSSMiB"`
	Peak          float64 `json:"gatewayPeakMiB"` // since its start
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func mib(n int64) float64        { return float64(n) / (1 << 20) }

// summarize computes the rows of a cell, one for each path.
func summarize(rows []Row) {
	hop := func(i environment.Interval) float64 { return us(i.Backend) }
	kube := func(i environment.Interval) float64 { return us(i.Server) }
	p50 := func(i environment.Interval) float64 { return ms(i.P50) }
	p99 := func(i environment.Interval) float64 { return ms(i.P99) }
	for way := range rows {
		row := &rows[way]
		row.KubeAPIServer, row.P50, row.P99 = measure.Of(row.intervals, kube), measure.Of(row.intervals, p50), measure.Of(row.intervals, p99)
		row.PerSecond = measure.Of(row.intervals, func(i environment.Interval) float64 { return i.PerSecond })
		if way == directly {
			continue
		}
		row.HopCPU, row.HopToBare = measure.Of(row.intervals, hop), measure.Ratio(row.intervals, rows[throughBare].intervals, hop)
		row.HopPeak = measure.Of(row.intervals, func(i environment.Interval) float64 { return mib(i.BackendPeak) })
		row.KubeToDirectly = measure.Ratio(row.intervals, rows[directly].intervals, kube)
		row.P50ToDirectly = measure.Ratio(row.intervals, rows[directly].intervals, p50)
		row.P99ToDirectly = measure.Ratio(row.intervals, rows[directly].intervals, p99)
	}
}

func summarizeWatches(rows []WatchRow) {
	hop := func(h environment.Delivery) float64 { return us(h.Backend) }
	kube := func(h environment.Delivery) float64 { return us(h.Server) }
	for way := range rows {
		row := &rows[way]
		row.KubeAPIServer = measure.Of(row.deliveries, kube)
		row.P50 = measure.Of(row.deliveries, func(h environment.Delivery) float64 { return ms(h.P50) })
		row.P99 = measure.Of(row.deliveries, func(h environment.Delivery) float64 { return ms(h.P99) })
		if way == directly {
			continue
		}
		row.HopCPU, row.HopToBare = measure.Of(row.deliveries, hop), measure.Ratio(row.deliveries, rows[throughBare].deliveries, hop)
		row.KubeToDirectly = measure.Ratio(row.deliveries, rows[directly].deliveries, kube)
		row.HopPeak = measure.Of(row.deliveries, func(h environment.Delivery) float64 { return mib(h.BackendPeak) })
	}
}

// Target is a limit on the gateway's CPU, with the measured value.
type Target struct {
	What       string
	Limit, Got float64
}

// IsMet reports whether the measured value is within the limit.
func (t Target) IsMet() bool { return t.Got <= t.Limit }

// Targets compares the gateway with a bare proxy in its place. The worst cell counts.
func (r *Report) Targets() []Target {
	worst := 0.0
	for _, row := range r.Requests {
		if row.Way == names[throughGateway] {
			worst = max(worst, row.HopToBare.Median)
		}
	}
	all := []Target{{"CPU of the hop for a request, in any cell", 0.6, worst}}
	if i := slices.IndexFunc(r.Watches, func(w WatchRow) bool { return w.Way == names[throughGateway] }); i >= 0 {
		all = append(all, Target{"CPU of the hop for a watch event", 0.6, r.Watches[i].HopToBare.Median})
	}
	return all
}

// Floors returns the CPU of the floor relative to the bare proxy, for each cell.
func (r *Report) Floors() []string {
	var all []string
	for _, row := range r.Requests {
		if row.Way == names[throughFloor] {
			all = append(all, fmt.Sprintf("%.2fx (%s)", row.HopToBare.Median, row.Cell))
		}
	}
	for _, row := range r.Watches {
		if row.Way == names[throughFloor] {
			all = append(all, fmt.Sprintf("%.2fx (a watch event)", row.HopToBare.Median))
		}
	}
	return all
}

// Markdown renders the report as a page.
func (r *Report) Markdown() ([]byte, error) {
	var b bytes.Buffer
	err := page.Execute(&b, r)
	return b.Bytes(), err
}

func times(s measure.Spread) string {
	if s == (measure.Spread{}) {
		return ""
	}
	return fmt.Sprintf("%.2fx (%.2f..%.2f)", s.Median, s.Min, s.Max)
}

var page = template.Must(template.New("gateway").Funcs(template.FuncMap{"x": times}).Parse(`# The cost of a gateway

Made on {{.Machine}}
kube-apiserver and kube-controller-manager are {{.Version}}. The run took {{printf "%.0f" .Took.Seconds}} s.

    make bench-gateway

Requests of a user that RBAC authorizes go through kube-apiserver to an extension server. There are four variants of the hop between the two:

- no hop;
- a bare ` + "`httputil.ReverseProxy`" + ` with the gateway's TLS and connection pools and no other function;
- the gateway;
- the smallest relay with the gateway's HTTP and TLS. It does not authenticate requests, look up objects or write logs. It is the floor: no
  gateway can use less CPU with the same HTTP and TLS.

The gateway and the relay run with the GODEBUG setting of deploy/gateway for Go's scheduler, the proxy with Go's defaults. Every server is a
separate process on one machine. The clients run there too, and use HTTP/2. Requests per second and latencies describe all processes together.

Numbers are medians; the minimum and the maximum are in brackets. CPU is in microseconds per request. Ratios are computed within each round.

## Requests

| request | through | CPU of the hop | to the bare proxy | CPU of kube-apiserver | to no hop | requests/s | p50 ms | to no hop | p99 ms | to no hop | peak MiB of the hop |
|---|---|---|---|---|---|---|---|---|---|---|---|
{{range .Requests}}| {{.Cell}} | {{.Way}} | {{.HopCPU}} | {{x .HopToBare}} | {{.KubeAPIServer}} | {{x .KubeToDirectly}} | {{printf "%.0f" .PerSecond.Median}} | {{.P50}} | {{x .P50ToDirectly}} | {{.P99}} | {{x .P99ToDirectly}} | {{.HopPeak}} |
{{end}}
## Watches

Each watch receives one event a second. CPU is in microseconds per event and client.

| watches | through | CPU of the hop | to the bare proxy | CPU of kube-apiserver | to no hop | p50 ms | p99 ms | peak MiB of the hop |
|---|---|---|---|---|---|---|---|---|
{{range .Watches}}| {{.Streams}} | {{.Way}} | {{.HopCPU}} | {{x .HopToBare}} | {{.KubeAPIServer}} | {{x .KubeToDirectly}} | {{.P50}} | {{.P99}} | {{.HopPeak}} |
{{end}}
## Idle

| | CPU of kube-apiserver, ms per second | CPU of the gateway, ms per second | memory of the gateway, MiB | its peak |
|---|---|---|---|---|
{{range .Idle}}| {{.Who}} | {{printf "%.1f" .KubeAPIServer}} | {{if .RSS}}{{printf "%.1f" .Gateway}}{{end}} | {{if .RSS}}{{printf "%.0f" .RSS}}{{end}} | {{if .Peak}}{{printf "%.0f" .Peak}}{{end}} |
{{end}}
There are three APIServices with a gateway, and one without.

## Targets

| | target | result |
|---|---|---|
{{range .Targets}}| {{.What}}, compared with the bare proxy | {{printf "%.2f" .Limit}}x | {{printf "%.2f" .Got}}x{{if not .IsMet}}: **not met**{{end}} |
{{end}}
The floor is {{range $i, $_ := .Floors}}{{if $i}}, {{end}}{{.}}{{end}}.
`))
