package memory

import (
	"strings"
	"testing"
)

func TestACellHasTheMeanCostAndTheHighestPeak(t *testing.T) {
	const mib = 1 << 20
	row := &Row{Who: "one", Cells: []Cell{
		summarize([]Cell{{CPU: 20, Peak: 200 * mib, PerSecond: 1000, P99: 1}, {CPU: 30, Peak: 300 * mib, PerSecond: 2000, P99: 3}}),
		summarize([]Cell{{CPU: 40_000, Peak: 500 * mib, PerSecond: 20, P99: 50}}),
	}}
	r := &Report{Settings: Full(), Loads: []string{"requests", "lists"}, Rows: []*Row{row}}
	page, err := r.Markdown()
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"\n## requests\n\n| | CPU us | peak MiB | requests/s | p99 ms |\n|---|---|---|---|---|\n| one | 25 | 300 | 1500 | 2 |\n",
		"\n## lists\n\n| | CPU us | peak MiB | requests/s | p99 ms |\n|---|---|---|---|---|\n| one | 40000 | 500 | 20 | 50 |\n",
	} {
		if !strings.Contains(string(page), part) {
			t.Errorf("the page has no %q, want it:\n%s", part, page)
		}
	}
}
