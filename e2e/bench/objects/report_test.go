package objects

import (
	"strings"
	"testing"
)

func TestThePageHasMemoryAndStarts(t *testing.T) {
	const mib = 1 << 20
	r := &Report{Settings: Full(), Rows: []Row{{
		Objects: 50_000, PerSecond: 2000, WritingPeak: 400 * mib, Written: 300 * mib, WrittenKept: 100 * mib, Read: 250 * mib, ReadKept: 90 * mib, ReadPeak: 350 * mib,
		New: 150, Existing: 800, Requests: []float64{3, 2, 2, 2, 2, 2, 2, 2, 2, 1.5},
	}}}
	page, err := r.Markdown()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"| 50000 | 2000 | 400 | 300 | 100 | 250 | 90 | 350 |", "| 50000 | 150 | 800 | 3.00 | 2.00 | 1.50 |"} {
		if !strings.Contains(string(page), line) {
			t.Errorf("the page has no %q, want it:\n%s", line, page)
		}
	}
}
