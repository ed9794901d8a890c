package proxied

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"text/template"
	"time"

	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// Builds compares two builds of the front door, cell by cell, in one run.
type Builds struct {
	Machine measure.Machine `json:"machine"`
	Rounds  int             `json:"rounds"`
	Cell    time.Duration   `json:"cellNanoseconds"`
	Took    time.Duration   `json:"tookNanoseconds"`
	Rows    []BuildRow      `json:"requests"`
}

// BuildRow contains the results of one cell. The ratios are this build to the previous one, in each round. The other
// values are this build's.
type BuildRow struct {
	Cell
	CPU         measure.Spread `json:"serverCPUus"`
	P99         measure.Spread `json:"p99ms"`
	CPURatio    measure.Spread `json:"cpuToBefore"`
	P99Ratio    measure.Spread `json:"p99ToBefore"`
	Allocations measure.Spread `json:"serverAllocations"`
	AllocsRatio measure.Spread `json:"allocationsToBefore"`
	PeakRatio   measure.Spread `json:"peakToBefore"`
}

// CompareBuilds compares program with another build of it. If program is empty, it is built from the tree.
func CompareBuilds(ctx context.Context, program, before string, s Settings, say func(string, ...any)) (*Builds, error) {
	y, err := environment.New(program)
	if err != nil {
		return nil, err
	}
	b := &Builds{Machine: measure.ThisMachine(), Rounds: s.Rounds, Cell: s.Cell}
	if err = b.run(ctx, y, before, s, say); err != nil {
		err = fmt.Errorf("%w\nthe front door's log ends:\n%s", err, y.Log())
	}
	if ended := y.Close(); err == nil {
		err = ended
	}
	b.Took = time.Since(b.Machine.Began)
	return b, err
}

func (b *Builds) run(ctx context.Context, y *environment.Environment, before string, s Settings, say func(string, ...any)) error {
	say("building and starting")
	backend, err := y.Backend()
	if err != nil {
		return err
	}
	old, err := openBuild(ctx, y, before, "before")
	if err != nil {
		return err
	}
	now, err := open(ctx, y, "now")
	if err != nil {
		return err
	}
	all := []Subject{{Name: "before", Server: old.Server, Token: environment.UserToken}, {Name: "now", Server: now.Server, Token: environment.UserToken}}
	if err := environment.Pause(ctx, s.Settle); err != nil {
		return err
	}
	cells := Cells()
	stretches := make([][2][]environment.Interval, len(cells))
	for round := range s.Rounds {
		for i, c := range cells {
			for _, k := range Order(len(all), round+i) {
				say("round %d of %d: %s, %s", round+1, s.Rounds, c, all[k].Name)
				got, err := once(ctx, all[k], c, backend, s)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", c, all[k].Name, err)
				}
				stretches[i][k] = append(stretches[i][k], got)
			}
		}
	}
	for i, c := range cells {
		was, is := stretches[i][0], stretches[i][1]
		ratio := func(number func(environment.Interval) float64) measure.Spread { return measure.Ratio(is, was, number) }
		p99 := func(s environment.Interval) float64 { return ms(s.P99) }
		allocations := func(s environment.Interval) float64 { return s.Allocations }
		b.Rows = append(b.Rows, BuildRow{
			Cell: c, CPU: measure.Of(is, serverCPU), P99: measure.Of(is, p99), Allocations: measure.Of(is, allocations),
			CPURatio: ratio(serverCPU), P99Ratio: ratio(p99), AllocsRatio: ratio(allocations),
			PeakRatio: ratio(func(s environment.Interval) float64 { return mib(s.Peak) }),
		})
	}
	return nil
}

// mean returns the geometric mean of a ratio over all cells, which has less noise than a single cell.
func (b *Builds) mean(of func(BuildRow) measure.Spread) float64 {
	sum := 0.0
	for _, row := range b.Rows {
		sum += math.Log(of(row).Median)
	}
	return math.Exp(sum / float64(len(b.Rows)))
}

// Markdown renders the comparison as a page.
func (b *Builds) Markdown() ([]byte, error) {
	var out bytes.Buffer
	err := buildsPage.Execute(&out, map[string]any{
		"B": b, "CPU": b.mean(func(r BuildRow) measure.Spread { return r.CPURatio }),
		"P99":    b.mean(func(r BuildRow) measure.Spread { return r.P99Ratio }),
		"Allocs": b.mean(func(r BuildRow) measure.Spread { return r.AllocsRatio }),
		"Peak":   b.mean(func(r BuildRow) measure.Spread { return r.PeakRatio }),
	})
	return out.Bytes(), err
}

var buildsPage = template.Must(template.New("builds").Funcs(template.FuncMap{
	"x": Times, "protocol": Protocol, "two": func(f float64) string { return fmt.Sprintf("%.2fx", f) },
	"n": func(s measure.Spread) string { return fmt.Sprintf("%.0f", s.Median) },
}).Parse(`# Two builds of the front door

Made by ` + "`go run ./e2e/bench -before FILE builds`" + ` on {{.B.Machine}}
{{.B.Rounds}} rounds of {{.B.Cell}} for each cell; the run took {{printf "%.0f" .B.Took.Seconds}} s.

In every round, an ordinary user loads the two builds one after the other. Ratios are of the new build to the one before. They are
computed within each round; shown are the median, the minimum and the maximum. Geometric means of the medians over all cells: CPU {{two .CPU}}, p99 {{two .P99}}, allocations {{two .Allocs}}, peak memory {{two .Peak}}.

| | clients | at once | CPU us | CPU, to before | p99 ms | p99, to before | allocations | to before | peak memory, to before |
|---|---|---|---|---|---|---|---|---|---|
{{- range .B.Rows}}
| {{.Operation}} | {{protocol .HTTP2}} | {{.Clients}} | {{.CPU}} | {{x .CPURatio}} | {{.P99}} | {{x .P99Ratio}} | {{n .Allocations}} | {{x .AllocsRatio}} | {{x .PeakRatio}} |
{{- end}}
`))
