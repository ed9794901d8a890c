package memory

import (
	"bytes"
	"fmt"
	"text/template"
	"time"

	"portico.dev/e2e/measure"
)

// Report contains the results.
type Report struct {
	Machine measure.Machine `json:"machine"`
	// Version of kube-apiserver, empty if it was not measured.
	Version  string        `json:"kubeAPIServer,omitempty"`
	Settings Settings      `json:"settings"`
	Took     time.Duration `json:"tookNanoseconds"`
	Loads    []string      `json:"loads"`
	Rows     []*Row        `json:"servers"`
}

// Row contains the results of one server, with a cell for each load.
type Row struct {
	Who   string `json:"server"`
	Cells []Cell `json:"cells"`

	cells [][]Cell // per load, one for each round
}

// Cell contains the results of one server under one load. CPU is in microseconds per request, Peak is the peak of
// resident memory in bytes. Both include all processes of the server.
type Cell struct {
	CPU       float64 `json:"cpuUS"`
	Peak      float64 `json:"rssPeak"`
	PerSecond float64 `json:"perSecond"`
	P99       float64 `json:"p99ms"`
	// Refused is true if the server refused requests for lack of memory. The other fields are then zero.
	Refused bool `json:"refused,omitempty"`
}

// summarize computes the mean CPU, because garbage collections occur only in some of the rounds, and the highest
// peak.
func summarize(cells []Cell) Cell {
	var all Cell
	n := float64(len(cells))
	for _, c := range cells {
		all.CPU, all.PerSecond, all.P99 = all.CPU+c.CPU/n, all.PerSecond+c.PerSecond/n, all.P99+c.P99/n
		all.Peak = max(all.Peak, c.Peak)
		all.Refused = all.Refused || c.Refused
	}
	return all
}

// Markdown renders the report as a page.
func (r *Report) Markdown() ([]byte, error) {
	var b bytes.Buffer
	err := page.Execute(&b, r)
	return b.Bytes(), err
}

var page = template.Must(template.New("memory").Funcs(template.FuncMap{
	"mib": func(n float64) string { return fmt.Sprintf("%.0f", n/(1<<20)) },
	"us": func(n float64) string {
		if n >= 1000 {
			return fmt.Sprintf("%.0f", n)
		}
		return fmt.Sprintf("%.3g", n)
	},
	"n": func(n float64) string { return fmt.Sprintf("%.0f", n) },
}).Parse(`# Memory under load

Made on {{.Machine}}
{{- if .Version}}
Portico is compared with kube-apiserver {{.Version}} and its etcd.
{{- end}} The run took {{printf "%.0f" .Took.Seconds}} s.

    PORTICO_BENCH_MEMORY_CGROUP=/sys/fs/cgroup/memory go run ./e2e/bench{{if .Version}} -kube-apiserver FILE -kube-controller-manager FILE{{end}} memory

Each server has {{.Settings.Many}} ConfigMaps of about 1 KB and one APIService. The servers run side by side and are loaded in turn, {{.Settings.Rounds}} times for
{{.Settings.Cell}} each, after {{.Settings.Warm}} of the same load. CPU is in microseconds per request, as the mean of all rounds. The peak is the peak resident
memory of the server under load. Portico's memory includes its etcd.

A front door with a memory limit may refuse requests of ordinary users, such as the proxied requests, when its memory is nearly used up
("refused"). If a front door exits, the run fails. In the first row, Portico tunes the garbage collector. GOGC disables this tuning. The
rows with GOGC show how the CPU depends on the room for garbage.
{{range $i, $load := .Loads}}
## {{$load}}

| | CPU us | peak MiB | requests/s | p99 ms |
|---|---|---|---|---|
{{- range $row := $.Rows}}
{{- with index .Cells $i}}
| {{$row.Who}} | {{if .Refused}}refused | | | |{{else}}{{us .CPU}} | {{mib .Peak}} | {{n .PerSecond}} | {{us .P99}} |{{end}}
{{- end}}
{{- end}}
{{end}}`))
