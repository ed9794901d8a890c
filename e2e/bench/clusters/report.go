package clusters

import (
	"bytes"
	"fmt"
	"slices"
	"text/template"
	"time"

	"portico.dev/e2e/bench/proxied"
	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// Report contains the results.
type Report struct {
	Machine  measure.Machine `json:"machine"`
	Settings Settings        `json:"settings"`
	Took     time.Duration   `json:"tookNanoseconds"`
	Rows     []proxied.Row   `json:"requests"`
	Paced    []PacedRow      `json:"paced"`
	Balance  []BalanceRow    `json:"balance"`
}

// PacedRow contains the results of one server at a fixed rate. CPU is in microseconds per request, latency in milliseconds. The
// second row is that of the bare proxy with HTTP/2 to the backend.
type PacedRow struct {
	Who       string         `json:"server"`
	PerSecond measure.Spread `json:"requestsPerSecond"`
	// Kept is true if the rate was reached in every round.
	Kept     bool           `json:"rateKept"`
	CPU      measure.Spread `json:"serverCPUus"`
	CPURatio measure.Spread `json:"cpuToBareHTTP2"`
	P50      measure.Spread `json:"p50ms"`
	P99      measure.Spread `json:"p99ms"`
	P99Ratio measure.Spread `json:"p99ToBareHTTP2"`

	intervals []environment.Interval
}

// placeBare is the index of the bare proxy with HTTP/2 to the backend.
const placeBare = 1

// reached is the part of the rate that counts as reached.
const reached = 0.98

// summarize computes the rows of the paced load.
func summarize(rows []PacedRow, perSecond int) {
	cpu := func(i environment.Interval) float64 { return float64(i.Server) / float64(time.Microsecond) }
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	p99 := func(i environment.Interval) float64 { return ms(i.P99) }
	for k := range rows {
		row := &rows[k]
		row.PerSecond = measure.Of(row.intervals, func(i environment.Interval) float64 { return i.PerSecond })
		row.Kept = row.PerSecond.Min >= reached*float64(perSecond)
		row.CPU, row.CPURatio = measure.Of(row.intervals, cpu), measure.Ratio(row.intervals, rows[placeBare].intervals, cpu)
		row.P50 = measure.Of(row.intervals, func(i environment.Interval) float64 { return ms(i.P50) })
		row.P99, row.P99Ratio = measure.Of(row.intervals, p99), measure.Ratio(row.intervals, rows[placeBare].intervals, p99)
	}
}

// cpuTarget is the CPU of the front door for a request, compared with a bare proxy.
const cpuTarget = 0.6

// Targets compares the front door with the bare proxies.
func (r *Report) Targets() []proxied.Target {
	var all []proxied.Target
	for _, t := range []struct {
		what   string
		is     func(proxied.Row) bool
		number func(proxied.Row) float64
	}{
		{"CPU at 32 and 256, to bare, HTTP/2 out", isCrowded, toH2},
		{"CPU at 32 and 256, to bare, HTTP/1.1 out", isCrowded, toH1},
		{"CPU one at a time, to bare, HTTP/2 out", isAlone, toH2},
		{"CPU one at a time, to bare, HTTP/1.1 out", isAlone, toH1},
	} {
		got, where := proxied.Worst(r.Rows, front, t.is, t.number)
		all = append(all, proxied.Target{What: t.what, Limit: cpuTarget, Got: got, Cell: where, Kept: got <= cpuTarget})
	}
	return all
}

func isCrowded(r proxied.Row) bool { return r.Clients > 1 }
func isAlone(r proxied.Row) bool   { return r.Clients == 1 }
func toH2(r proxied.Row) float64   { return r.CPUToH2.Median }
func toH1(r proxied.Row) float64   { return r.CPUToH1.Median }

// Distance is the CPU of a request through the front door, compared with the floor. CPU is in microseconds.
type Distance struct {
	Cell         proxied.Cell
	Floor, Front measure.Spread // to the bare proxy with HTTP/2 to the backend
	Added        float64        // CPU of the front door above the floor
}

// Distances returns the distance in each cell.
func (r *Report) Distances() []Distance {
	var all []Distance
	for _, row := range r.Rows {
		if row.Who != front {
			continue
		}
		least := slices.IndexFunc(r.Rows, func(f proxied.Row) bool { return f.Who == floor && f.Cell == row.Cell })
		if least < 0 {
			continue
		}
		f := r.Rows[least]
		all = append(all, Distance{row.Cell, f.CPUToH2, row.CPUToH2, row.CPU.Median - f.CPU.Median})
	}
	return all
}

// Markdown renders the report as a page.
func (r *Report) Markdown() ([]byte, error) {
	var b bytes.Buffer
	err := page.Execute(&b, map[string]any{
		"R": r, "Groups": proxied.Groups(r.Rows), "Targets": r.Targets(),
		"Nginx": slices.ContainsFunc(r.Rows, func(row proxied.Row) bool { return row.CPUToNginx != measure.Spread{} }),
	})
	return b.Bytes(), err
}

// percent renders the shares of all backends, the restarted one first.
func percent(shares []Share, of func(Share) float64) string {
	var text string
	for i, s := range shares {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%.0f %%", 100*of(s))
	}
	return text
}

var page = template.Must(template.New("clusters").Funcs(template.FuncMap{
	"x": proxied.Times, "n": proxied.Number,
	"two":      func(f float64) string { return fmt.Sprintf("%.2fx", f) },
	"yes":      func(b bool) string { return map[bool]string{true: "yes", false: "**no**"}[b] },
	"requests": func(s []Share) string { return percent(s, func(s Share) float64 { return s.Requests }) },
	"cpu":      func(s []Share) string { return percent(s, func(s Share) float64 { return s.CPU }) },
	"connections": func(shares []Share) string {
		var text string
		for i, s := range shares {
			if i > 0 {
				text += ", "
			}
			text += fmt.Sprintf("%.0f", s.Connections)
		}
		return text
	},
}).Parse(`# Requests to an existing cluster

Made by ` + "`go run ./e2e/bench clusters`" + ` on {{.R.Machine}}
{{.R.Settings.Rounds}} rounds of {{.R.Settings.Cell}} for each cell; the run took {{printf "%.0f" .R.Took.Seconds}} s.

A front door serves a backend as [a Cluster](../../../docs/fleet.md), below ` + "`/clusters/NAME`" + `. For each request, it authenticates a token, authorizes
clusters/proxy by RBAC, applies API Priority and Fairness, writes an audit event to a file, and sends the user in impersonation headers.
For comparison, the same requests go straight to the backend and through bare ` + "`httputil.ReverseProxy`" + ` servers{{if .Nginx}} and nginx with one worker{{end}}, which
only forward them. The backend answers with an object in memory, so that a real API server would make all ratios of delays smaller.
Otherwise, the measurement is the same as for [proxied requests](proxied.md): numbers are medians of the rounds, with the minimum and the
maximum in brackets, and ratios are computed within each round.
{{if not .Nginx}}
nginx was not installed on the machine.
{{end}}
| target | at most | worst median | in | met |
|---|---|---|---|---|
{{- range .Targets}}
| {{.What}} | {{two .Limit}} | {{two .Got}} | {{.Cell}} | {{yes .Kept}} |
{{- end}}

The floor is the smallest relay with the front door's HTTP and TLS: it forwards requests to the backend, and neither authenticates nor limits
nor logs them. No front door with this HTTP and this TLS can use less CPU. The distance is what authentication, authorization, API Priority
and Fairness, audit, metrics, the choice of the API server and the identity in the header add.

| CPU of a request, to bare, HTTP/2 out | floor | front door | distance, us |
|---|---|---|---|
{{- range .R.Distances}}
| {{.Cell}} | {{x .Floor}} | {{x .Front}} | {{printf "%.0f" .Added}} |
{{- end}}
{{range .Groups}}
## {{.Title}}

| at once | | CPU us | to bare, HTTP/2 out | to bare, HTTP/1.1 out | to nginx | p50 ms | p99 ms | p99 to bare, HTTP/2 out | p99 to nginx | allocations |
|---|---|---|---|---|---|---|---|---|---|---|
{{- range .Rows}}
| {{.Clients}} | {{.Who}} | {{.CPU}} | {{x .CPUToH2}} | {{x .CPUToH1}} | {{x .CPUToNginx}} | {{.P50}} | {{.P99}} | {{x .P99ToH2}} | {{x .P99ToNginx}} | {{n .Allocations}} |
{{- end}}
{{end}}
## {{.R.Settings.PerSecond}} GETs a second

GET 1 KB over {{.R.Settings.Connections}} connections of HTTP/2, at a fixed rate for {{.R.Settings.Paced}}, in {{.R.Settings.PacedRounds}} rounds. The time of a request begins
when it is due. If the rate was not kept, the delays are those of the machine, and cannot be compared.

| | requests/s | rate kept | CPU us | to bare, HTTP/2 out | p50 ms | p99 ms | p99 to bare, HTTP/2 out |
|---|---|---|---|---|---|---|---|
{{- range .R.Paced}}
| {{.Who}} | {{n .PerSecond}} | {{yes .Kept}} | {{.CPU}} | {{x .CPURatio}} | {{.P50}} | {{.P99}} | {{x .P99Ratio}} |
{{- end}}

## A restarted API server

{{.R.Settings.Balance.Clients}} clients send GETs as fast as they can over {{.R.Settings.Balance.Connections}} connections of HTTP/2, to a TCP load balancer that gives each new connection to the
next of three backends, and then to a Cluster of the same backends. The first backend is killed, and started again {{.R.Settings.Balance.Down}} later. The table has the
loads of the three backends for {{.R.Settings.Balance.Window}} before that, and for {{.R.Settings.Balance.Window}} after the first one has run for {{.R.Settings.Balance.Rest}}. The connections of the
front door include those of its probes.

| | | requests | CPU | connections | failed requests |
|---|---|---|---|---|---|
{{- range .R.Balance}}
| {{.Who}} | before | {{requests .Before}} | {{cpu .Before}} | {{connections .Before}} | |
| | after | {{requests .After}} | {{cpu .After}} | {{connections .After}} | {{.Failed}} of {{.Requests}} |
{{- end}}
`))
