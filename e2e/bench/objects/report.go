package objects

import (
	"bytes"
	"fmt"
	"text/template"
	"time"

	"portico.dev/e2e/measure"
)

// Report contains the results.
type Report struct {
	Machine  measure.Machine `json:"machine"`
	Settings Settings        `json:"settings"`
	Took     time.Duration   `json:"tookNanoseconds"`
	Rows     []Row           `json:"frontDoors"`
}

// Row contains the results of one front door. Memory is in bytes and includes its etcd. Times are in milliseconds.
type Row struct {
	Objects int `json:"objects"`
	// PerSecond is the rate at which objects were created.
	PerSecond float64 `json:"perSecond"`
	// WritingPeak is the peak resident memory until all objects were written, Written the resident memory after a
	// rest, WrittenKept the heap after a garbage collection.
	WritingPeak float64 `json:"writingRSSPeak"`
	Written     float64 `json:"writtenRSS"`
	WrittenKept float64 `json:"writtenHeapKept"`
	// Read, ReadKept and ReadPeak belong to a process that has started with the objects.
	Read     float64 `json:"startedRSS"`
	ReadKept float64 `json:"startedHeapKept"`
	ReadPeak float64 `json:"startedRSSPeak"`
	// New is the time from the start of the process until it is ready with an empty data directory, Existing the same
	// with the objects.
	New      float64 `json:"newDirectoryStartMS"`
	Existing float64 `json:"objectsStartMS"`
	// Requests contains the durations of the first requests after that start, each over a new connection.
	Requests []float64 `json:"firstRequestsMS"`
}

// Markdown renders the report as a page.
func (r *Report) Markdown() ([]byte, error) {
	var b bytes.Buffer
	err := page.Execute(&b, r)
	return b.Bytes(), err
}

var page = template.Must(template.New("objects").Funcs(template.FuncMap{
	"mib": func(n float64) string { return fmt.Sprintf("%.0f", n/(1<<20)) },
	"ms":  func(n float64) string { return fmt.Sprintf("%.0f", n) },
	"first": func(all []float64, i int) string {
		if i >= len(all) {
			return ""
		}
		return fmt.Sprintf("%.2f", all[i])
	},
	"n": func(f float64) string {
		if f == 0 {
			return ""
		}
		return fmt.Sprintf("%.0f", f)
	},
}).Parse(`# Many objects

Made on {{.Machine}}
The run took {{printf "%.0f" .Took.Seconds}} s.

    go run ./e2e/bench objects

Each front door has an embedded etcd. 32 clients create ConfigMaps of about 1 KB. Then the front door is idle for {{printf "%.0f" .Settings.Rest.Seconds}} s, stops, and starts again with
the objects; its files are in the page cache at that time. Memory is resident memory, including the pages of etcd's file. "Kept" is the memory in
use after a garbage collection, stacks included.

| objects | created/s | peak MiB during creation | RSS MiB when idle | kept MiB | RSS MiB after a start | kept MiB | peak MiB of the start |
|---|---|---|---|---|---|---|---|
{{- range .Rows}}
| {{.Objects}} | {{n .PerSecond}} | {{mib .WritingPeak}} | {{mib .Written}} | {{mib .WrittenKept}} | {{mib .Read}} | {{mib .ReadKept}} | {{mib .ReadPeak}} |
{{- end}}

Target: at most 250 MiB with 100,000 objects.

A start ends when the front door is ready and all watch caches are full. Requests are sequential GETs of a namespace, each over a new connection with a
TLS handshake.

| objects | ready in ms, new directory | ready in ms, with the objects | first request ms | second | tenth |
|---|---|---|---|---|---|
{{- range .Rows}}
| {{.Objects}} | {{ms .New}} | {{ms .Existing}} | {{first .Requests 0}} | {{first .Requests 1}} | {{first .Requests 9}} |
{{- end}}

Targets: ready within 1,000 ms with 50,000 objects; the first request no slower than the tenth.
`))
