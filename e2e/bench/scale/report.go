package scale

import (
	"bytes"
	"fmt"
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
	Rows     []Row           `json:"frontDoors"`
	Streams  []StreamRow     `json:"idleWatches"`
}

// Row contains the results of one front door. CPU is in microseconds per request, memory in bytes.
type Row struct {
	APIServices int            `json:"apiServices"`
	Bindings    int            `json:"bindings"`
	CPU         measure.Spread `json:"cpuUS"`
	// Ratio is relative to the first front door, in each round.
	Ratio measure.Spread `json:"cpuToFirst"`
	// Own is CPU without the idle CPU in the same time, over all rounds. OwnRatio is its ratio to the first front
	// door.
	Own      float64        `json:"ownCPUus"`
	OwnRatio float64        `json:"ownCPUToFirst"`
	P99      measure.Spread `json:"p99ms"`
	// Peak is the peak resident memory under load.
	Peak measure.Spread `json:"rssPeak"`
	RSS  float64        `json:"rss"`
	// PeakFilled is the peak from the start until the idle time.
	PeakFilled float64 `json:"filledRSSPeak"`
	// Kept is the heap after a garbage collection.
	Kept float64 `json:"heapKept"`
	// IdleCPU is in seconds per minute without requests.
	IdleCPU           float64 `json:"idleCPUSecondsPerMinute"`
	Registered, Bound time.Duration
	// Appeared is the time in milliseconds from the creation of an APIService to its first response.
	Appeared measure.Spread `json:"appearedMS"`
}

// StreamRow contains the results of a server with idle watches.
type StreamRow struct {
	Who     string  `json:"server"`
	Streams int     `json:"streams"`
	Each    float64 `json:"bytesEach"`
	RSS     float64 `json:"rss"`
	CPU     float64 `json:"openingCPUus"`
	// Peak is the peak resident memory since the first watch was opened.
	Peak float64 `json:"rssPeak"`
}

// summarize computes the rows of the alternating measurements. A garbage collection affects only some intervals, so
// the median of the intervals would exclude most of its cost. Therefore Own is computed over all intervals.
func summarize(all []*subject) {
	first := all[0]
	for _, f := range all {
		var ratios []float64
		var used time.Duration
		var lasted float64 // seconds
		requests := 0
		for i, s := range f.stretches {
			ratios = append(ratios, float64(s.Server)/float64(first.stretches[i].Server))
			used += s.Server * time.Duration(s.Requests)
			lasted += float64(s.Requests) / s.PerSecond
			requests += s.Requests
		}
		f.row.CPU = measure.Of(f.stretches, func(s environment.Interval) float64 { return float64(s.Server) / float64(time.Microsecond) })
		f.row.P99 = measure.Of(f.stretches, func(s environment.Interval) float64 { return float64(s.P99) / float64(time.Millisecond) })
		f.row.Peak = measure.Of(f.stretches, func(s environment.Interval) float64 { return float64(s.Peak) })
		f.row.Ratio = measure.SpreadOf(ratios)
		idle := f.row.IdleCPU / time.Minute.Seconds() * lasted
		f.row.Own = (used.Seconds() - idle) * 1e6 / float64(requests)
		f.row.OwnRatio = f.row.Own / first.row.Own
	}
}

// Markdown renders the report as a page.
func (r *Report) Markdown() ([]byte, error) {
	var b bytes.Buffer
	err := page.Execute(&b, r)
	return b.Bytes(), err
}

// Extra returns the bytes per additional APIService, compared with the first front door.
func (r *Report) Extra(row Row, number func(Row) float64) float64 {
	first := r.Rows[0]
	if row.APIServices <= first.APIServices {
		return 0
	}
	return (number(row) - number(first)) / float64(row.APIServices-first.APIServices)
}

// ExtraRSS formats the additional resident memory per APIService.
func (r *Report) ExtraRSS(row Row) string {
	return kibOrNothing(r.Extra(row, func(r Row) float64 { return r.RSS }))
}

// ExtraKept formats the additional heap per APIService.
func (r *Report) ExtraKept(row Row) string {
	return kibOrNothing(r.Extra(row, func(r Row) float64 { return r.Kept }))
}

func kibOrNothing(bytes float64) string {
	if bytes == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f", bytes/1024)
}

var page = template.Must(template.New("scale").Funcs(template.FuncMap{
	"mib": func(n float64) string { return fmt.Sprintf("%.0f", n/(1<<20)) },
	"kib": func(n float64) string { return fmt.Sprintf("%.1f", n/(1<<10)) },
	"x":   func(s measure.Spread) string { return fmt.Sprintf("%.2fx (%.2f..%.2f)", s.Median, s.Min, s.Max) },
	"f1":  func(f float64) string { return fmt.Sprintf("%.1f", f) },
	"s":   func(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()) },
}).Parse(`# Many APIServices, RoleBindings and watches

Made by ` + "`make bench`" + ` on {{.Machine}}
{{.Settings.Rounds}} rounds of {{.Settings.Cell}}; the run took {{printf "%.0f" .Took.Seconds}} s.

The front doors run side by side, each with its own embedded etcd, and are loaded in turn. A request is a GET of 1 KB through
one of the APIServices, over HTTP/2, 32 at once, by a user that one of the RoleBindings authorizes. Each APIService has its
own Service, group and backend; all backends listen on one address. Numbers are medians; the minimum and the maximum are in
brackets. Ratios are computed within each round. "Own CPU" is the CPU per request over all rounds, garbage collection
included, minus the idle CPU below. An idle front door pings and probes every backend.

| APIServices | bindings | CPU us per request | ratio to the first row | own CPU us | own CPU, ratio to the first row | p99 ms | first response of a new APIService after, ms | peak MiB |
|---|---|---|---|---|---|---|---|---|
{{- range .Rows}}
| {{.APIServices}} | {{.Bindings}} | {{.CPU}} | {{x .Ratio}} | {{f1 .Own}} | {{printf "%.2fx" .OwnRatio}} | {{.P99}} | {{.Appeared}} | {{mib .Peak.Max}} |
{{- end}}

Targets: own CPU between 0.95x and 1.05x; the first response of a new APIService in less than 1,000 ms.

## At rest

"Kept" is the memory that is in use after a garbage collection, stacks included. The memory per APIService is the growth compared
with the first row, divided by the number of additional APIServices. It includes the objects in etcd, watch caches and informers, and the
open connection.
Memory is read {{printf "%.0f" .Settings.Rest.Seconds}} s after all objects were created, idle CPU in the {{printf "%.0f" .Settings.Idle.Seconds}} s after that. The front door fetches the documents of new
backends more often for some minutes; the idle CPU includes this.

| APIServices | bindings | RSS MiB | kept MiB | RSS KiB per APIService | kept KiB per APIService | CPU s per idle minute | registered in s | bound in s | peak MiB until then |
|---|---|---|---|---|---|---|---|---|---|
{{- range .Rows}}
| {{.APIServices}} | {{.Bindings}} | {{mib .RSS}} | {{mib .Kept}} | {{$.ExtraRSS .}} | {{$.ExtraKept .}} | {{f1 .IdleCPU}} | {{s .Registered}} | {{if .Bindings}}{{s .Bound}}{{end}} | {{mib .PeakFilled}} |
{{- end}}

Targets: each additional APIService under 50 KiB, without its documents; under 2 CPU seconds in an idle minute with 1,000 APIServices.

## Idle watches

The watches use HTTP/2, 50 per connection, through the server to the backend.

| | watches | KiB each | RSS MiB | CPU us to open one | peak MiB |
|---|---|---|---|---|---|
{{- range .Streams}}
| {{.Who}} | {{.Streams}} | {{kib .Each}} | {{mib .RSS}} | {{printf "%.0f" .CPU}} | {{mib .Peak}} |
{{- end}}

Target: under 60 KiB each.
`))
