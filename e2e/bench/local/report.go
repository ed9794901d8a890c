package local

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
	Rows     []Row           `json:"operations"`
}

// Row contains the results of one operation. CPU is in microseconds per request, or per event delivered to one watch.
type Row struct {
	Operation
	CPU map[string]measure.Spread `json:"cpuUS"`
	// ChainAdds is the cost of the chain and the handler minus the cost of the handler, computed in each round.
	ChainAdds measure.Spread `json:"chainAddsUS"`
	PerSecond measure.Spread `json:"frontDoorPerSecond"`
	P50       measure.Spread `json:"frontDoorP50ms"`
	P99       measure.Spread `json:"frontDoorP99ms"`
	Peak      measure.Spread `json:"frontDoorPeakMiB"`

	costs                     map[string][]float64
	perSecond, p50, p99, peak []float64
}

func (r *Row) summarize() {
	r.CPU = map[string]measure.Spread{}
	for _, l := range layers {
		r.CPU[l] = measure.SpreadOf(r.costs[l])
	}
	var adds []float64
	for i, with := range r.costs[chainLayer] {
		adds = append(adds, with-r.costs[handlerLayer][i])
	}
	r.ChainAdds = measure.SpreadOf(adds)
	r.PerSecond, r.P50, r.P99, r.Peak = measure.SpreadOf(r.perSecond), measure.SpreadOf(r.p50), measure.SpreadOf(r.p99), measure.SpreadOf(r.peak)
}

// CPUOf returns the CPU at a layer.
func (r Row) CPUOf(layer string) string { return r.CPU[layer].String() }

// Markdown renders the report as a page.
func (r *Report) Markdown() ([]byte, error) {
	var b bytes.Buffer
	err := page.Execute(&b, map[string]any{"R": r, "Layers": layers})
	return b.Bytes(), err
}

var page = template.Must(template.New("local").Funcs(template.FuncMap{
	"n": func(s measure.Spread) string { return fmt.Sprintf("%.0f", s.Median) },
	"mib": func(s measure.Spread) string {
		if s == (measure.Spread{}) {
			return ""
		}
		return fmt.Sprintf("%.0f", s.Median)
	},
	"signed": func(s measure.Spread) string { return fmt.Sprintf("%+.1f (%.1f..%.1f)", s.Median, s.Min, s.Max) },
}).Parse(`# The local groups, compared with the storage library that they use

Made by ` + "`make bench`" + ` on {{.R.Machine}}
{{.R.Settings.Rounds}} rounds of {{.R.Settings.Cell}}; the run took {{printf "%.0f" .R.Took.Seconds}} s.

The objects are ConfigMaps of about 1 KB in an embedded etcd. **CPU is microseconds per request.** For a watch it is microseconds
per event delivered to one of the watches, including the change itself. Numbers are medians; the minimum and the maximum are in
brackets.

- storage library: ` + "`registry.Store`" + ` of k8s.io/apiserver with a watch cache, called in process; responses are not encoded;
- REST handler: the handler of the local groups, called in process with the request information that it needs;
- chain and handler: the same handler behind the complete handler chain, with a token, RBAC, API Priority and Fairness, and the audit log;
- front door, TLS: a separate front door process, to which an administrator sends requests over HTTP/2. The clients share its cores.

"The chain adds" is computed within each round. The first two rows show the handler chain alone, because the handler is empty.

| | at once |{{range .Layers}} {{.}} |{{end}} the chain adds | peak MiB of the front door |
|---|---|{{range .Layers}}---|{{end}}---|---|
{{- range $row := .R.Rows}}
| {{$row.Name}} | {{$row.Clients}} |{{range $.Layers}} {{$row.CPUOf .}} |{{end}} {{signed $row.ChainAdds}} | {{mib $row.Peak}} |
{{- end}}

Target: the chain adds less than 10 us.

## At the front door

| | at once | per second | p50 ms | p99 ms | peak MiB |
|---|---|---|---|---|---|
{{- range .R.Rows}}{{if .PerSecond.Median}}
| {{.Name}} | {{.Clients}} | {{n .PerSecond}} | {{.P50}} | {{.P99}} | {{mib .Peak}} |
{{- end}}{{end}}
`))
