package load

import (
	"math"
	"strings"
	"testing"
	"time"

	"portico.dev/e2e/environment"
)

// interval is a second in which each request took so much CPU and so long.
func interval(requests int, cpu, p99 time.Duration) environment.Interval {
	return environment.Interval{
		Server: cpu, Peak: 100 << 20, Answer: environment.Answer{Requests: requests, PerSecond: float64(requests), P50: p99 / 2, P99: p99},
	}
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-6 }

// The idle load of a server is not part of the cost of a request, for any number of requests.
func TestARequestsOwnLeavesOutWhatIsDoneAnyway(t *testing.T) {
	rows := []*APIServiceRow{
		{APIServices: 10, stretches: []environment.Interval{interval(100, 120*time.Microsecond, 2*time.Millisecond)}, idle: []float64{0.002}},
		{APIServices: 1000, stretches: []environment.Interval{interval(100, 620*time.Microsecond, 3*time.Millisecond)}, idle: []float64{0.052}},
	}
	summarizeAPIServices(rows)
	if !near(rows[0].Own, 100) || !near(rows[1].Own, 100) || !near(rows[1].OwnRatio, 1) {
		t.Errorf("own cost = %v and %v us, %vx; want 100, 100 and 1x", rows[0].Own, rows[1].Own, rows[1].OwnRatio)
	}
	if !near(rows[1].P99Ratio.Median, 1.5) || !near(rows[1].Ratio.Median, 620.0/120) || !near(rows[1].Idle.Median, 52) {
		t.Errorf("row of 1000 APIServices = %+v, want the ratios 1.5 and 5.17 and 52 ms idle", rows[1])
	}

	changing := []*BindingRow{
		{State: "no bindings", Anyway: 10, stretches: []environment.Interval{interval(1000, 30*time.Microsecond, time.Millisecond)}, collecting: []float64{2}},
		{State: "42 changes/s", Bindings: 50_000, Anyway: 110, Changed: 42, stretches: []environment.Interval{interval(1000, 132*time.Microsecond, time.Millisecond)}, collecting: []float64{4}},
	}
	summarizeBindings(changing)
	if !near(changing[0].Own, 20) || !near(changing[1].Own, 22) || !near(changing[1].OwnRatio, 1.1) || changing[1].Peak != 100<<20 {
		t.Errorf("own costs = %+v and %+v, want 20 and 22 us and a peak of 100 MiB", changing[0], changing[1])
	}
}

func TestThePageHasTheTablesOfThePartsThatWereMeasured(t *testing.T) {
	whole := &Report{
		Settings:    Full(),
		APIServices: []*APIServiceRow{{APIServices: 10, Peak: 7 << 20}},
		Connections: []*ConnectionRow{{Who: "one", Connections: 10_000, PerSecond: 2000, CPU: 98.76, Ratio: 1.234, P50: 0.5, P99: 3.25, Opening: 456, Each: 12.5 * 1024, Peak: 300 << 20}},
		Bindings:    []*BindingRow{{State: "42 changes/s", Namespaces: 5000, Bindings: 50_000, Changed: 400, Own: 25.55, OwnRatio: 1.043, Kept: 120 << 20, Peak: 500 << 20}},
		OpenAPI: &OpenAPIRow{
			Served: 100_400_000, Registered: 4 * time.Second, Merged: 9500 * time.Millisecond, CPU: 7.77, Before: 100 << 20, Peak: 250 << 20, Kept: 60 << 20,
			Quiet: Asked{P50: 0.25, P99: 1.5}, Meanwhile: Asked{PerSecond: 199.6, P50: 0.75, P99: 12.5},
		},
	}
	lines := map[string]string{
		"## Requests over many APIServices": "| 10 | 0 |",
		"## Many connections":               "| one | 10000 | 2000 | 98.8 | 1.23x | 0.50 | 3.25 | 456 | 12.5 | 300 |",
		"## Changing bindings":              "| 50000 | 5000 | 42 changes/s | 400 | 0 |  | 0.0 | 25.6 | 1.04x |",
		"## Large OpenAPI documents":        "| 100.4 | 4.0 | 9.5 | 7.8 | 100 | 250 | 60 | 200 | 0.25 | 0.75 | 1.50 | 12.50 |\n",
	}
	for _, c := range []struct {
		report *Report
		tables int
	}{{whole, 4}, {&Report{Settings: Full(), Connections: whole.Connections}, 1}} {
		page, err := c.report.Markdown()
		if err != nil {
			t.Fatal(err)
		}
		tables := 0
		for title, line := range lines {
			_, table, found := strings.Cut(string(page), "\n"+title+"\n")
			if !found {
				continue
			}
			tables++
			if !strings.Contains(table, "\n"+line) {
				t.Errorf("table %s has no line %q, want it:\n%s", title, line, page)
			}
			head, below, _ := strings.Cut(table[strings.Index(table, "\n|")+1:], "\n")
			if rule, _, _ := strings.Cut(below, "\n"); strings.Count(head, "|") != strings.Count(rule, "|") {
				t.Errorf("table %s has a head of %d columns and a rule of %d, want equal numbers",
					title, strings.Count(head, "|")-1, strings.Count(rule, "|")-1)
			}
			if peaks := strings.Contains(head, "peak MiB"); !peaks {
				t.Errorf("table %s has no column of peak memory, want one", title)
			}
		}
		if tables != c.tables {
			t.Errorf("%d tables, want %d:\n%s", tables, c.tables, page)
		}
	}
}
