package growth

import (
	"math"
	"strings"
	"testing"
)

func TestExponentOfGrowth(t *testing.T) {
	rows := func(cost func(n float64) float64) []Row {
		var all []Row
		for _, n := range []int{0, 10, 100, 1000, 10_000} {
			all = append(all, Row{Count: n, Kept: cost(float64(n))})
		}
		return all
	}
	for name, c := range map[string]struct {
		cost func(n float64) float64
		want float64 // NaN for no growth
	}{
		"linear beyond a constant": {func(n float64) float64 { return 1000 + 40*n }, 1},
		"quadratic":                {func(n float64) float64 { return 5 + n*n/100 }, 2},
		"noise only":               {func(n float64) float64 { return 1000 + math.Sin(n) }, math.NaN()},
		"less with more":           {func(n float64) float64 { return 1000 - n/100 }, math.NaN()},
		"growth at the end only":   {func(n float64) float64 { return 1000 + n/10 }, math.NaN()},
	} {
		got := fits(rows(c.cost)).Kept.Exponent
		if math.IsNaN(c.want) {
			if got != nil {
				t.Errorf("exponent of %s = %v, want none", name, *got)
			}
		} else if got == nil || math.Abs(*got-c.want) > 0.01 {
			t.Errorf("exponent of %s = %v, want %v", name, got, c.want)
		}
	}
}

func TestPageShowsExponents(t *testing.T) {
	rows := []Row{{Kept: 1 << 20}, {Count: 10, Kept: 2 << 20, Filled: 1}, {Count: 100, Kept: 11 << 20, Filled: 1}}
	r := &Report{Kinds: []Growth{{Kind: "APIServices", Change: "create one", Rows: rows, Fits: fits(rows)}}}
	page, err := r.Markdown()
	if err != nil {
		t.Fatal(err)
	}
	if want := "| growth | n^1.00 | 0.00x | 0.00x | 0.00x | 0.00x | n^1.00 |"; !strings.Contains(string(page), want) {
		t.Errorf("page =\n%s\nwant %q", page, want)
	}
}
