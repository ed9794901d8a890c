package measure

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Spread is a number with its range.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// SpreadOf returns the median and the range of values. It is zero without values.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	s := slices.Sorted(slices.Values(values))
	return Spread{Median: (s[(len(s)-1)/2] + s[len(s)/2]) / 2, Min: s[0], Max: s[len(s)-1]}
}

// String formats the median, with the range in parentheses.
func (s Spread) String() string {
	if s == (Spread{}) {
		return ""
	}
	return fmt.Sprintf("%s (%s..%s)", digits(s.Median), digits(s.Min), digits(s.Max))
}

// digits formats a number with three significant digits, because further digits are noise.
func digits(f float64) string {
	if f == 0 || math.IsNaN(f) || math.IsInf(f, 0) {
		return fmt.Sprintf("%.3g", f)
	}
	decimals := 2 - int(math.Floor(math.Log10(math.Abs(f))))
	return fmt.Sprintf("%.*f", min(max(decimals, 0), 3), f)
}

// Of returns the Spread of one number of each result.
func Of[T any](results []T, number func(T) float64) Spread {
	values := make([]float64, 0, len(results))
	for _, r := range results {
		values = append(values, number(r))
	}
	return SpreadOf(values)
}

// Ratio computes the ratio in each round, so that other load on the machine affects both sides.
func Ratio[T any](these, those []T, number func(T) float64) Spread {
	var all []float64
	for i := range these {
		all = append(all, number(these[i])/number(those[i]))
	}
	return SpreadOf(all)
}

// Quantile returns the q-quantile of sorted values.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
