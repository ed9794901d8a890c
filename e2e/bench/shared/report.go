package shared

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
	Machine  measure.Machine `json:"machine"`
	Settings Settings        `json:"settings"`
	Took     time.Duration   `json:"tookNanoseconds"`
	Rows     []Row           `json:"requests"`
	Polls    []PollRow       `json:"pollers"`
	Watches  []WatchRow      `json:"watches"`
	Idle     []IdleRow       `json:"idleWatches"`
}

// Cell is a kind of request, a protocol and a number of concurrent clients.
type Cell struct {
	Operation string `json:"operation"`
	HTTP2     bool   `json:"http2"`
	Clients   int    `json:"clients"`

	below string
}

func (c Cell) String() string {
	return fmt.Sprintf("%s, %s, %d at once", c.Operation, protocol(c.HTTP2), c.Clients)
}

func protocol(http2 bool) string {
	if http2 {
		return "HTTP/2"
	}
	return "HTTP/1.1"
}

func cells() []Cell {
	get, list := "GET 1 KB", "list 100 KB"
	return []Cell{
		{get, true, 32, "/small"}, {get, true, 256, "/small"}, {get, false, 256, "/small"}, {list, true, 32, ""}, {list, true, 256, ""},
	}
}

// Row contains the results of one server in one cell. CPU is in microseconds per request, latency in milliseconds.
// Ratios are relative to the bare proxy.
type Row struct {
	Cell
	Who        string         `json:"server"`
	CPU        measure.Spread `json:"serverCPUus"`
	CPURatio   measure.Spread `json:"cpuToBare"`
	PerSecond  measure.Spread `json:"requestsPerSecond"`
	P50        measure.Spread `json:"p50ms"`
	P99        measure.Spread `json:"p99ms"`
	BackendCPU measure.Spread `json:"backendCPUus"`
	Peak       measure.Spread `json:"peakMiB"`

	intervals []environment.Interval
}

// PollRow contains the results of one server with pollers. CPU is in milliseconds per second.
type PollRow struct {
	Who        string         `json:"server"`
	Requests   measure.Spread `json:"requests"`
	AtBackend  measure.Spread `json:"requestsAtBackend"`
	PerMaxAge  measure.Spread `json:"requestsAtBackendPerMaxAge"`
	CPU        measure.Spread `json:"serverCPUmsPerSecond"`
	CPURatio   measure.Spread `json:"cpuToBare"`
	BackendCPU measure.Spread `json:"backendCPUmsPerSecond"`
	P50        measure.Spread `json:"p50ms"`
	P99        measure.Spread `json:"p99ms"`
	Peak       measure.Spread `json:"serverPeakMiB"`
}

// WatchRow contains the results of one server with watches. CPU is in microseconds per event and client.
type WatchRow struct {
	Who        string         `json:"server"`
	CPU        measure.Spread `json:"serverCPUus"`
	CPURatio   measure.Spread `json:"cpuToUnshared"`
	BackendCPU measure.Spread `json:"backendCPUus"`
	P50        measure.Spread `json:"p50ms"`
	P99        measure.Spread `json:"p99ms"`
	Peak       measure.Spread `json:"serverPeakMiB"`

	deliveries []environment.Delivery
}

// IdleRow contains the results of a front door with idle watches. Each is in bytes per watch. Peak is the peak
// resident memory since the first watch was opened.
type IdleRow struct {
	Who     string  `json:"server"`
	Streams int     `json:"streams"`
	Each    float64 `json:"bytesEach"`
	Peak    float64 `json:"rssPeak"`
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func serverCPU(i environment.Interval) float64 { return us(i.Server) }

// summarize computes the rows of a cell. The first row belongs to the bare proxy.
func summarize(rows []Row) {
	for i := range rows {
		row := &rows[i]
		row.CPU = measure.Of(row.intervals, serverCPU)
		row.CPURatio = measure.Ratio(row.intervals, rows[0].intervals, serverCPU)
		row.PerSecond = measure.Of(row.intervals, func(i environment.Interval) float64 { return i.PerSecond })
		row.P50 = measure.Of(row.intervals, func(i environment.Interval) float64 { return ms(i.P50) })
		row.P99 = measure.Of(row.intervals, func(i environment.Interval) float64 { return ms(i.P99) })
		row.BackendCPU = measure.Of(row.intervals, func(i environment.Interval) float64 { return us(i.Backend) })
		row.Peak = measure.Of(row.intervals, func(i environment.Interval) float64 { return float64(i.Peak) / (1 << 20) })
	}
}

func summarizePolls(who string, these, bare []poll, s Settings) PollRow {
	cpu := func(p poll) float64 { return ms(p.server) / p.lasted.Seconds() }
	of := func(number func(poll) float64) measure.Spread { return measure.Of(these, number) }
	return PollRow{
		Who: who, Requests: of(func(p poll) float64 { return float64(p.requests) }),
		AtBackend:  of(func(p poll) float64 { return p.backendRequests }),
		PerMaxAge:  of(func(p poll) float64 { return p.backendRequests * s.MaxAge.Seconds() / s.PollFor.Seconds() }),
		CPU:        of(cpu),
		CPURatio:   measure.Ratio(these, bare, cpu),
		BackendCPU: of(func(p poll) float64 { return ms(p.backend) / p.lasted.Seconds() }),
		P50:        of(func(p poll) float64 { return ms(p.p50) }),
		P99:        of(func(p poll) float64 { return ms(p.p99) }),
		Peak:       of(func(p poll) float64 { return float64(p.peak) / (1 << 20) }),
	}
}

// summarizeWatches computes the rows of the watches. The second row belongs to the front door without shared watches.
// quiet is the idle CPU per second of each server.
func summarizeWatches(rows []WatchRow, quiet []time.Duration, s Settings) {
	own := func(i int) func(environment.Delivery) float64 {
		return func(d environment.Delivery) float64 {
			return us(d.Server) - us(quiet[i])*s.Watch.Seconds()/float64(d.Events)
		}
	}
	for i := range rows {
		row := &rows[i]
		row.CPU = measure.Of(row.deliveries, own(i))
		var ratios []float64
		for round, d := range row.deliveries {
			ratios = append(ratios, own(i)(d)/own(1)(rows[1].deliveries[round]))
		}
		row.CPURatio = measure.SpreadOf(ratios)
		row.BackendCPU = measure.Of(row.deliveries, func(d environment.Delivery) float64 { return us(d.Backend) })
		row.P50 = measure.Of(row.deliveries, func(d environment.Delivery) float64 { return ms(d.P50) })
		row.P99 = measure.Of(row.deliveries, func(d environment.Delivery) float64 { return ms(d.P99) })
		row.Peak = measure.Of(row.deliveries, func(d environment.Delivery) float64 { return float64(d.Peak) / (1 << 20) })
	}
}

// Target is a limit, with the measured value.
type Target struct {
	What       string
	Limit, Got float64
	Kept       bool
}

// Targets compares the front door with its limits.
func (r *Report) Targets() []Target {
	var targets []Target
	add := func(what string, limit, got float64) {
		targets = append(targets, Target{what, limit, got, got <= limit})
	}
	for _, row := range r.Rows {
		if row.Who == all && row.target() {
			add("CPU of a shared GET of 1 KB, HTTP/2, 256 at once, compared with the bare proxy", 0.25, row.CPURatio.Median)
		}
	}
	for _, row := range r.Polls {
		if row.Who == all {
			add(fmt.Sprintf("requests at the backend in each maxAge, %d pollers", r.Settings.Pollers), 1, row.PerMaxAge.Median)
		}
	}
	for _, row := range r.Watches {
		if row.Who == all {
			add(fmt.Sprintf("CPU of an event of one of %d shared watches, compared with an unshared watch", r.Settings.Streams), 0.5, row.CPURatio.Median)
		}
	}
	for _, row := range r.Idle {
		if row.Who == all {
			add(fmt.Sprintf("KiB per watch of %d idle shared watches", row.Streams), 20, row.Each/1024)
		}
	}
	return targets
}

// target reports whether the first target applies to the cell.
func (c Cell) target() bool { return c.Operation == "GET 1 KB" && c.HTTP2 && c.Clients == 256 }

// row returns the row of a server in the cell of the first target. It is empty if the server was not measured.
func (r *Report) row(who string) Row {
	i := slices.IndexFunc(r.Rows, func(row Row) bool { return row.Who == who && row.target() })
	if i < 0 {
		return Row{}
	}
	return r.Rows[i]
}

// Markdown renders the report as a page.
func (r *Report) Markdown() ([]byte, error) {
	var b bytes.Buffer
	err := page.Execute(&b, map[string]any{
		"R": r, "Targets": r.Targets(), "Items": environment.PodMetrics, "Floor": r.row(floor), "Library": r.row(library), "All": r.row(all),
		"Nginx": slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Who == nginx }),
	})
	return b.Bytes(), err
}

func times(s measure.Spread) string { return fmt.Sprintf("%.2fx (%.2f..%.2f)", s.Median, s.Min, s.Max) }

var page = template.Must(template.New("shared").Funcs(template.FuncMap{
	"x": times, "protocol": protocol,
	"n":   func(s measure.Spread) string { return fmt.Sprintf("%.0f", s.Median) },
	"kib": func(f float64) string { return fmt.Sprintf("%.1f", f/1024) },
	"mib": func(f float64) string { return fmt.Sprintf("%.0f", f/(1<<20)) },
	"two": func(f float64) string { return fmt.Sprintf("%.2f", f) },
	"one": func(f float64) string { return fmt.Sprintf("%.1f", f) },
	"yes": func(b bool) string { return map[bool]string{true: "yes", false: "**no**"}[b] },
}).Parse(`# Shared reads

Made by ` + "`go run ./e2e/bench shared`" + ` on {{.R.Machine}}
{{.R.Settings.Rounds}} rounds of {{.R.Settings.Cell}} for each cell; the run took {{printf "%.0f" .R.Took.Seconds}} s.

Clients send equal reads through an APIRoute with [sharedReads](../../../docs/routes.md#shared-reads) and a maxAge of {{.R.Settings.MaxAge}}. For comparison, they send
them through a bare ` + "`httputil.ReverseProxy`" + `, which forwards each read{{if .Nginx}}, and through nginx (one worker) without and with its cache of the same age{{end}}. The
front door authenticates a token, authorizes each request by RBAC, applies API Priority and Fairness, and writes audit events to a file;
the other servers do none of this. Otherwise, the measurement is the same as for [proxied requests](proxied.md).
{{if not .Nginx}}
nginx was not installed on the machine.
{{end}}
| target | at most | got | met |
|---|---|---|---|
{{- range .Targets}}
| {{.What}} | {{two .Limit}} | {{two .Got}} | {{yes .Kept}} |
{{- end}}

The floors are servers that only write an object from memory: one with the front door's HTTP and TLS, and one with net/http. No front door can
use less CPU with the same HTTP and TLS. In the cell of the first target, the floor with the front door's HTTP is {{two .Floor.CPURatio.Median}} of the bare proxy
({{one .Floor.CPU.Median}} us of the front door's {{one .All.CPU.Median}} us), and the floor with net/http is {{two .Library.CPURatio.Median}}.

## Requests

| | at once | | CPU us | to bare | requests/s | p50 ms | p99 ms | backend CPU us | peak MiB |
|---|---|---|---|---|---|---|---|---|---|
{{- range .R.Rows}}
| {{.Operation}}, {{protocol .HTTP2}} | {{.Clients}} | {{.Who}} | {{.CPU}} | {{x .CPURatio}} | {{n .PerSecond}} | {{.P50}} | {{.P99}} | {{.BackendCPU}} | {{n .Peak}} |
{{- end}}

## Pollers

{{.R.Settings.Pollers}} clients, each with one connection, request a list of {{.Items}} PodMetrics every {{.R.Settings.Every}}, for {{.R.Settings.PollFor}}. CPU is in milliseconds per second.

| | requests | requests at the backend | the same per maxAge | CPU ms/s | to bare | backend CPU ms/s | p50 ms | p99 ms | peak MiB |
|---|---|---|---|---|---|---|---|---|---|
{{- range .R.Polls}}
| {{.Who}} | {{n .Requests}} | {{n .AtBackend}} | {{two .PerMaxAge.Median}} | {{.CPU}} | {{x .CPURatio}} | {{.BackendCPU}} | {{.P50}} | {{.P99}} | {{n .Peak}} |
{{- end}}

## Watches

{{.R.Settings.Streams}} watches over HTTP/2, 50 per connection, receive one event of about 400 bytes a second each. The idle CPU of each server is
subtracted, because an idle front door is a complete API server with an etcd.

| | CPU us per event | ratio to unshared watches | backend CPU us | p50 ms | p99 ms | peak MiB |
|---|---|---|---|---|---|---|
{{- range .R.Watches}}
| {{.Who}} | {{.CPU}} | {{x .CPURatio}} | {{.BackendCPU}} | {{.P50}} | {{.P99}} | {{n .Peak}} |
{{- end}}

Events of shared watches arrive at all clients at once, and events of other watches are spread over the second. Their latencies are not comparable.

| idle watches | | KiB each | peak MiB |
|---|---|---|---|
{{- range .R.Idle}}
| {{.Streams}} | {{.Who}} | {{kib .Each}} | {{mib .Peak}} |
{{- end}}
`))
