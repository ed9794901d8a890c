package backends

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
	Rows     []*Row        `json:"servers"`
}

// Row contains the results of one server, summed over its processes. Memory is in bytes, CPU in seconds.
type Row struct {
	Who string `json:"server"`
	// Before is the resident memory before the registrations. Peak is the sum of the peaks of the processes.
	Before         float64       `json:"rssBefore"`
	Peak           float64       `json:"rssPeak"`
	Registered     time.Duration `json:"registeredNanoseconds"`
	RegisteringCPU float64       `json:"registeringCPUSeconds"`
	Minutes        []Minute      `json:"minutes"`
	// Kept is the heap after a garbage collection at the end. Kept and Goroutines are known for Portico only.
	Kept       float64 `json:"heapKept,omitempty"`
	Goroutines float64 `json:"goroutines,omitempty"`
}

// Minute contains the results of one minute without requests.
type Minute struct {
	RSS measure.Spread `json:"rss"`
	CPU float64        `json:"cpuSeconds"`
}

// Markdown renders the report as a page.
func (r *Report) Markdown() ([]byte, error) {
	var b bytes.Buffer
	err := page.Execute(&b, r)
	return b.Bytes(), err
}

var page = template.Must(template.New("backends").Funcs(template.FuncMap{
	"inc": func(n int) int { return n + 1 },
	"mib": func(n float64) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprintf("%.0f", n/(1<<20))
	},
	"more": func(s measure.Spread, before float64) string {
		mib := func(n float64) float64 { return (n - before) / (1 << 20) }
		return fmt.Sprintf("%.0f (%.0f..%.0f)", mib(s.Median), mib(s.Min), mib(s.Max))
	},
	"n": func(f float64) string {
		if f == 0 {
			return ""
		}
		return fmt.Sprintf("%.0f", f)
	},
	"f1": func(f float64) string { return fmt.Sprintf("%.1f", f) },
	"s":  func(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()) },
}).Parse(`# Many backends at once

Made on {{.Machine}}
{{- if .Version}}
Portico is compared with kube-apiserver {{.Version}}, which runs with kube-controller-manager and etcd.
{{- end}} The run took {{printf "%.0f" .Took.Seconds}} s.

    go run ./e2e/bench{{if .Version}} -kube-apiserver FILE -kube-controller-manager FILE{{end}} backends

{{.Settings.APIServices}} APIServices are registered, {{.Settings.PerSecond}} a second. Each has its own Service, group and backend, with a separate port, certificate and
certificate authority, and about 25 KiB of OpenAPI. All backends run in one process. When all APIServices are Available, the servers
are left idle. Memory is resident memory and is read every {{.Settings.Sample}}. The first number is the memory before the registrations. The others are
the growth since then: the median, with the minimum and the maximum in brackets. CPU includes all processes of a server and its etcd.

| | RSS MiB before | registered in s | CPU s until then |{{range $i, $m := (index .Rows 0).Minutes}} growth MiB, minute {{inc $i}} | CPU s, minute {{inc $i}} |{{end}} peak MiB | kept MiB | goroutines |
|---|---|---|---|{{range (index .Rows 0).Minutes}}---|---|{{end}}---|---|---|
{{- range $row := .Rows}}
| {{.Who}} | {{mib .Before}} | {{s .Registered}} | {{f1 .RegisteringCPU}} |{{range .Minutes}} {{more .RSS $row.Before}} | {{f1 .CPU}} |{{end}} {{mib .Peak}} | {{mib .Kept}} | {{n .Goroutines}} |
{{- end}}

Minute 1 begins when all APIServices are Available. "Kept" is the memory in use after a garbage collection at the end, stacks included.

Targets: at most 60 MiB of growth, and 2 CPU seconds in each minute.
`))
