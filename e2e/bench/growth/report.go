package growth

import (
	"bytes"
	"fmt"
	"math"
	"text/template"
	"time"

	"portico.dev/e2e/measure"
)

// Report contains the results.
type Report struct {
	Machine  measure.Machine `json:"machine"`
	Settings Settings        `json:"settings"`
	Took     time.Duration   `json:"tookNanoseconds"`
	Kinds    []Growth        `json:"kinds"`
}

// Growth contains the results of one kind.
type Growth struct {
	Kind   string `json:"kind"`
	Change string `json:"change"`
	// Rows are in ascending order of Count; the first has 0.
	Rows []Row `json:"rows"`
	Fits Fits  `json:"growth"`
}

// Row contains the results with Count objects.
type Row struct {
	Count int `json:"count"`
	// Filled is the time in milliseconds to create one of the objects, with several writers.
	Filled float64 `json:"createdMS"`
	// Kept is the memory in bytes after a garbage collection.
	Kept float64 `json:"heapKept"`
	// Idle is CPU in seconds per minute without requests.
	Idle float64 `json:"idleCPUSecondsPerMinute"`
	// Request is CPU in microseconds per request, without the idle CPU.
	Request measure.Spread `json:"requestCPUus"`
	// Took is the time in milliseconds until the effect of a change, ChangeCPU the CPU in milliseconds of a change
	// without the idle CPU.
	Took      measure.Spread `json:"changeMS"`
	ChangeCPU float64        `json:"changeCPUms"`
}

// Fits contains the growth of each cost.
type Fits struct {
	Filled    Fit `json:"created"`
	Kept      Fit `json:"heapKept"`
	Idle      Fit `json:"idleCPU"`
	Request   Fit `json:"requestCPU"`
	Took      Fit `json:"change"`
	ChangeCPU Fit `json:"changeCPU"`
}

// Fit describes the growth of a cost.
type Fit struct {
	// Exponent is b of the power law a*n^b that fits best to the cost beyond the cost without objects. It is nil if
	// fewer than two numbers of objects cost more than the noise.
	Exponent *float64 `json:"exponent,omitempty"`
	// Ratio is the cost with the most objects, divided by the cost without objects.
	Ratio float64 `json:"ratio,omitempty"`
}

func (f Fit) String() string {
	if f.Exponent != nil {
		return fmt.Sprintf("n^%.2f", *f.Exponent)
	}
	return fmt.Sprintf("%.2fx", f.Ratio)
}

// noise is the part of the cost without objects by which a cost must exceed it to count as growth.
const noise = 0.15

// fits computes the growth of all costs.
func fits(rows []Row) Fits {
	of := func(cost func(Row) float64) Fit { return fit(rows, cost) }
	return Fits{
		Filled: of(func(r Row) float64 { return r.Filled * float64(r.Count) }),
		Kept:   of(func(r Row) float64 { return r.Kept }), Idle: of(func(r Row) float64 { return r.Idle }),
		Request: of(func(r Row) float64 { return r.Request.Median }),
		Took:    of(func(r Row) float64 { return r.Took.Median }), ChangeCPU: of(func(r Row) float64 { return r.ChangeCPU }),
	}
}

// fit returns the growth of a cost. The exponent is the slope of the regression line through the logarithms of the
// counts and of the costs beyond that of the first row.
func fit(rows []Row, cost func(Row) float64) Fit {
	var f Fit
	base := cost(rows[0])
	if base > 0 {
		f.Ratio = cost(rows[len(rows)-1]) / base
	}
	var n, sumX, sumY, sumXX, sumXY float64
	for _, r := range rows[1:] {
		growth := cost(r) - base
		if growth <= 0 || growth <= noise*base {
			continue
		}
		x, y := math.Log(float64(r.Count)), math.Log(growth)
		n, sumX, sumY, sumXX, sumXY = n+1, sumX+x, sumY+y, sumXX+x*x, sumXY+x*y
	}
	if n >= 2 {
		slope := (n*sumXY - sumX*sumY) / (n*sumXX - sumX*sumX)
		f.Exponent = &slope
	}
	return f
}

// Markdown renders the report as a page.
func (r *Report) Markdown() ([]byte, error) {
	var b bytes.Buffer
	err := page.Execute(&b, r)
	return b.Bytes(), err
}

var page = template.Must(template.New("growth").Funcs(template.FuncMap{
	"mib":     func(n float64) string { return fmt.Sprintf("%.0f", n/(1<<20)) },
	"f1":      func(f float64) string { return fmt.Sprintf("%.1f", f) },
	"f2":      func(f float64) string { return fmt.Sprintf("%.2f", f) },
	"percent": func() string { return fmt.Sprintf("%.0f", noise*100) },
}).Parse(`# Growth with the number of objects

Made by ` + "`go run ./e2e/bench growth`" + ` on {{.Machine}}
The run took {{printf "%.0f" .Took.Seconds}} s.

For each kind, one front door with an embedded etcd gets more and more objects. With each number of objects, the following is measured:

- kept: memory in use after a garbage collection, stacks included
- idle: CPU in a minute without requests
- request: CPU of a GET of 1 KB through an APIService, over HTTP/2, 32 at once, by a user that a RoleBinding authorizes; idle CPU is
  subtracted; median, minimum and maximum of {{.Settings.Rounds}} intervals
- change: median, minimum and maximum of the time until the effect of each of {{.Settings.Changes}} changes, and the CPU of one change without idle CPU
- create: time to create one of the objects with several writers

The last row describes the growth. n^b is the power law a*n^b that fits best to the cost beyond the cost without objects: n^1 is linear.
Where fewer than two numbers of objects cost {{percent}} % more than none, it has the ratio of the most objects to none instead. The power law
of create belongs to the time to create all objects.
{{range .Kinds}}
## {{.Kind}}

A change: {{.Change}}.

| {{.Kind}} | kept MiB | idle CPU s | request CPU us | change ms | change CPU ms | create ms |
|---|---|---|---|---|---|---|
{{- range .Rows}}
| {{.Count}} | {{mib .Kept}} | {{f1 .Idle}} | {{.Request}} | {{.Took}} | {{f1 .ChangeCPU}} | {{if .Count}}{{f2 .Filled}}{{end}} |
{{- end}}
{{- with .Fits}}
| growth | {{.Kept}} | {{.Idle}} | {{.Request}} | {{.Took}} | {{.ChangeCPU}} | {{.Filled}} |
{{- end}}
{{end}}`))
