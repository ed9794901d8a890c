package backends

import (
	"strings"
	"testing"
	"time"

	"portico.dev/e2e/measure"
)

func TestThePageSaysHowMuchMoreMemoryIsUsed(t *testing.T) {
	const mib = 1 << 20
	minute := func(least, median, most, cpu float64) Minute {
		return Minute{RSS: measure.Spread{Min: least * mib, Median: median * mib, Max: most * mib}, CPU: cpu}
	}
	r := &Report{Settings: Full(), Rows: []*Row{
		{
			Who: "one", Before: 100 * mib, Registered: 10 * time.Second, RegisteringCPU: 12.34, Peak: 300 * mib, Kept: 50 * mib, Goroutines: 2000,
			Minutes: []Minute{minute(150, 160, 250, 4.32), minute(140, 150, 160, 1.98)},
		},
		{Who: "another", Before: 400 * mib, Registered: 11 * time.Second, Peak: 700 * mib, Minutes: []Minute{minute(500, 600, 700, 13.6), minute(500, 500, 500, 13)}},
	}}
	page, err := r.Markdown()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"| | RSS MiB before | registered in s | CPU s until then | growth MiB, minute 1 | CPU s, minute 1 | growth MiB, minute 2 | CPU s, minute 2 | peak MiB | kept MiB | goroutines |",
		"| one | 100 | 10.0 | 12.3 | 60 (50..150) | 4.3 | 50 (40..60) | 2.0 | 300 | 50 | 2000 |",
		"| another | 400 | 11.0 | 0.0 | 200 (100..300) | 13.6 | 100 (100..100) | 13.0 | 700 |  |  |",
	} {
		if !strings.Contains(string(page), "\n"+line+"\n") {
			t.Errorf("the page has no line %q, want it:\n%s", line, page)
		}
	}
	if columns := strings.Count(strings.Split(string(page), "\n|---")[1], "---|"); columns != 10 {
		t.Errorf("%d columns of the table, want 11", columns+1)
	}
}
