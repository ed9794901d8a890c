package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/template"
	"time"

	"portico.dev/e2e/packed"
)

// row contains the results of one situation.
type row struct {
	APIServices                            int
	Backends                               string
	APIs, APIsBytes, OpenAPI, OpenAPIBytes sample
	Idle                                   float64 // share of one core
	Heap, RSS, Peak                        int64
}

// pair contains two consecutive turns.
type pair struct{ Healthy, Hung sample }

// changes contains the times until a change is visible.
type changes struct {
	APIServices          int
	FlipCPU              time.Duration
	FlipP50, FlipMax     time.Duration
	AppearP50, AppearMax time.Duration
}

type report struct {
	Machine, Go  string
	Load         string // load average of the machine, at the start and at the end
	Took         time.Duration
	Began        time.Time
	Rows         []row
	Pairs        []pair
	Changes      []changes
	RatioP50     float64 // 50 of 1000 hang, compared with healthy: the median of the pairs
	RatioP99     float64
	RatioCPU     float64
	Healthy      sample // all turns of one side
	Hung         sample
	RatioP99Pool float64
}

func newReport() *report {
	return &report{Machine: machine(), Go: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH, Load: loadAverage(), Began: time.Now()}
}

func (r *report) finish() {
	r.Took = time.Since(r.Began)
	r.Load += " at the start, " + loadAverage() + " at the end"
	ratio := func(of func(sample) float64) float64 {
		var all []float64
		for _, p := range r.Pairs {
			all = append(all, of(p.Hung)/of(p.Healthy))
		}
		return median(all)
	}
	r.RatioP50 = ratio(func(s sample) float64 { return float64(s.P50) })
	r.RatioP99 = ratio(func(s sample) float64 { return float64(s.P99) })
	r.RatioCPU = ratio(func(s sample) float64 { return float64(s.CPU) })
	for _, p := range r.Pairs {
		r.Healthy, r.Hung = r.Healthy.join(p.Healthy), r.Hung.join(p.Hung)
	}
	r.RatioP99Pool = float64(r.Hung.P99) / float64(r.Healthy.P99)
}

func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

func machine() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	model := "unknown processor"
	if err == nil {
		for line := range strings.SplitSeq(string(data), "\n") {
			if name, ok := strings.CutPrefix(line, "model name"); ok {
				model = strings.TrimLeft(name, "\t :")
				break
			}
		}
	}
	return fmt.Sprintf("%d x %s", runtime.NumCPU(), model)
}

func loadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(data), " ")
	return first
}

func (r *report) write(dir string) error {
	asJSON, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	var page bytes.Buffer
	if err := layout.Execute(&page, r); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := packed.Write(filepath.Join(dir, "discovery.json"+packed.Suffix), append(asJSON, '\n')); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "discovery.md"), page.Bytes(), 0o644)
}

var layout = template.Must(template.New("report").Funcs(template.FuncMap{
	"ms":  func(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/float64(time.Millisecond)) },
	"us":  func(d time.Duration) string { return fmt.Sprintf("%.0f", float64(d)/float64(time.Microsecond)) },
	"mib": func(n int64) string { return fmt.Sprintf("%.0f", float64(n)/(1<<20)) },
	"kib": func(n int64) string { return fmt.Sprintf("%.1f", float64(n)/(1<<10)) },
	"x":   func(f float64) string { return fmt.Sprintf("%.2fx", f) },
	"pct": func(f float64) string { return fmt.Sprintf("%.1f %%", 100*f) },
	"cpu": func(a, b sample) string { return fmt.Sprintf("%.2fx", float64(a.CPU)/float64(b.CPU)) },
}).Parse(`# Latency of discovery requests

Made by ` + "`go run ./e2e/bench/discovery -out e2e/bench/results`" + ` on {{.Machine}}, {{.Go}}.
Load average {{.Load}}: other work shared the machine. The run took {{printf "%.0f" .Took.Seconds}} s. Absolute
numbers of such a machine mean little; ratios within one run can be trusted.

## 50 of 1,000 backends hang, compared with none

There are {{len .Pairs}} pairs of measurements, in one process and in changing order. The front door has requests open to the hanging
backends during the measurement. The medians of the ratios:

| p50 | p99 | CPU for each request |
|---|---|---|
| {{x .RatioP50}} | **{{x .RatioP99}}** | {{x .RatioCPU}} |

Over all measurements together, p99 is {{ms .Healthy.P99}} ms for {{.Healthy.Requests}} requests with healthy backends, and {{ms .Hung.P99}} ms for
{{.Hung.Requests}} requests with hanging ones: {{x .RatioP99Pool}}. The pairs, healthy and hanging:

| p50 ms | p99 ms | requests |
|---|---|---|
{{- range .Pairs}}
| {{ms .Healthy.P50}} / {{ms .Hung.P50}} | {{ms .Healthy.P99}} / {{ms .Hung.P99}} | {{.Healthy.Requests}} / {{.Hung.Requests}} |
{{- end}}

## Aggregated /apis

"Against bytes" is the CPU of one request, divided by the CPU when a handler writes the same headers and bytes from a
variable. The difference is the cost of choosing the response.

| APIServices | backends | p50 ms | p99 ms | CPU us | against bytes | KiB sent |
|---|---|---|---|---|---|---|
{{- range .Rows}}
| {{.APIServices}} | {{.Backends}} | {{ms .APIs.P50}} | {{ms .APIs.P99}} | {{us .APIs.CPU}} | {{cpu .APIs .APIsBytes}} | {{kib .APIs.Bytes}} |
{{- end}}

## /openapi/v3

| APIServices | backends | p50 ms | p99 ms | CPU us | against bytes | KiB sent |
|---|---|---|---|---|---|---|
{{- range .Rows}}
| {{.APIServices}} | {{.Backends}} | {{ms .OpenAPI.P50}} | {{ms .OpenAPI.P99}} | {{us .OpenAPI.CPU}} | {{cpu .OpenAPI .OpenAPIBytes}} | {{kib .OpenAPI.Bytes}} |
{{- end}}

## Idle CPU and memory

Idle CPU is the share of one core while no client sends requests. It is measured just after the backends changed, when the
front door fetches their documents most often. Memory is read after a garbage collection; the peak
is of everything since the backends changed, the requests of the tables above included.

| APIServices | backends | idle CPU | heap MiB | resident MiB | peak MiB |
|---|---|---|---|---|---|
{{- range .Rows}}
| {{.APIServices}} | {{.Backends}} | {{pct .Idle}} | {{mib .Heap}} | {{mib .RSS}} | {{mib .Peak}} |
{{- end}}

## The cost of changes

A flip is a change of availability of one backend. It is measured from the change of the route table to the new document. A
new registration appears when the document contains the resources of its backend, which the front door has to fetch first.

| APIServices | CPU of a flip, ms | flip p50 ms | flip max ms | appears p50 ms | appears max ms |
|---|---|---|---|---|---|
{{- range .Changes}}
| {{.APIServices}} | {{ms .FlipCPU}} | {{ms .FlipP50}} | {{ms .FlipMax}} | {{ms .AppearP50}} | {{ms .AppearMax}} |
{{- end}}
`))
