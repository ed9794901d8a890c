package proxied

import (
	"strings"
	"testing"
	"time"

	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// A ratio of one round means something on a busy machine, a ratio of medians does not.
func TestRatiosAreTakenInEachRound(t *testing.T) {
	rounds := func(cpu ...time.Duration) (all []environment.Interval) {
		for _, c := range cpu {
			all = append(all, environment.Interval{Server: c, Answer: environment.Answer{P99: time.Millisecond}})
		}
		return all
	}
	c := Cell{Operation: operations[0].name, HTTP2: true, Clients: 32, of: operations[0]}
	rows := []Row{
		{Cell: c, Who: direct, stretches: rounds(1, 1, 1)},
		{Cell: c, Who: bareH2, stretches: rounds(100, 200, 400)},
		{Cell: c, Who: bareH1, stretches: rounds(50, 100, 200)},
		{Cell: c, Who: admin, stretches: rounds(100, 200, 400)},
		{Cell: c, Who: user, stretches: rounds(120, 240, 500)},
	}
	summarize(rows)
	if got := rows[4].CPUToH2; got.Median != 1.2 || got.Min != 1.2 || got.Max != 1.25 {
		t.Errorf("ratio to HTTP/2 = %+v, want 1.2 (1.2..1.25)", got)
	}
	if got := rows[4].CPUToH1; got.Median != 2.4 {
		t.Errorf("ratio to HTTP/1.1 = %+v, want 2.4", got)
	}

	r := &Report{Rows: rows}
	kept := map[string]bool{}
	for _, target := range r.Targets() {
		kept[target.What] = target.Kept
	}
	if kept["CPU of GET 1 KB at 32 and 256"] || kept["CPU in any cell"] || !kept["p99 in any cell"] {
		t.Errorf("kept targets = %v, want only p99", kept)
	}
	page, err := r.Markdown()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## GET 1 KB, clients speak HTTP/2\n", "| 32 | front door, user by RBAC | 0.240 (0.120..0.500) | 1.20x (1.20..1.25) |", "**no**"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page has no %q, want it in\n%s", want, page)
		}
	}
}

// The report has the difference between two builds for each cell and for all cells.
func TestTwoBuildsAreCompared(t *testing.T) {
	ratio := func(f float64) measure.Spread { return measure.Spread{Median: f, Min: f, Max: f} }
	b := &Builds{Rows: []BuildRow{
		{Cell: Cell{Operation: "GET 1 KB", HTTP2: true, Clients: 32}, CPURatio: ratio(0.5), P99Ratio: ratio(1), AllocsRatio: ratio(1), PeakRatio: ratio(1)},
		{Cell: Cell{Operation: "GET 1 KB", Clients: 32}, CPURatio: ratio(2), P99Ratio: ratio(1), AllocsRatio: ratio(1), PeakRatio: ratio(4)},
	}}
	page, err := b.Markdown()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"CPU 1.00x, p99 1.00x, allocations 1.00x, peak memory 2.00x", "| GET 1 KB | HTTP/2 | 32 |", "0.50x (0.50..0.50)"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page has no %q, want it in\n%s", want, page)
		}
	}
}

// The targets for nginx are checked in each measured cell. On a machine without nginx the report has none.
func TestTargetsToNginx(t *testing.T) {
	interval := func(cpu, p99 time.Duration) []environment.Interval {
		return []environment.Interval{{Server: cpu, Answer: environment.Answer{P99: p99}}}
	}
	var rows []Row
	for _, c := range Cells() {
		cell := []Row{
			{Cell: c, Who: direct, stretches: interval(1000, time.Millisecond)}, {Cell: c, Who: bareH2, stretches: interval(1000, 10*time.Millisecond)}, {Cell: c, Who: bareH1, stretches: interval(1000, 10*time.Millisecond)},
			{Cell: c, Who: admin, stretches: interval(1000, 10*time.Millisecond)}, {Cell: c, Who: user, stretches: interval(1400, 12*time.Millisecond)},
			{Cell: c, Who: nginx, stretches: interval(1000, 10*time.Millisecond)},
		}
		summarize(cell)
		rows = append(rows, cell...)
	}
	r := &Report{Rows: rows}
	kept := map[bool]int{}
	for _, target := range r.TargetsToNginx() {
		kept[target.Kept]++
		if want := map[bool]float64{true: 1.4, false: 1.2}[strings.HasPrefix(target.What, "CPU")]; target.Got != want {
			t.Errorf("ratio for the target %s = %v, want %v", target.What, target.Got, want)
		}
	}
	if kept[true] != 2 || kept[false] != 2 {
		t.Errorf("kept and missed targets = %v, want 2 of each", kept)
	}
	page, err := r.Markdown()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "compared with nginx") || !strings.Contains(string(page), "| 32 | front door, user by RBAC |") {
		t.Errorf("page with nginx =\n%s\nwant a comparison", page)
	}
	r.Rows = rows[:5]
	if got := r.TargetsToNginx(); got != nil {
		t.Errorf("targets without nginx = %+v, want none", got)
	}
	if page, err = r.Markdown(); err != nil || strings.Contains(string(page), "compared with nginx") {
		t.Errorf("page without nginx = %v\n%s\nwant no comparison", err, page)
	}
}
