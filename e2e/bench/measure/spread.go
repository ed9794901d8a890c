package measure

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Spread is a number with its noise.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// SpreadOf is the median of values, and how far they lie apart. Of no value it is zero.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	s := slices.Sorted(slices.Values(values))
	return Spread{Median: (s[(len(s)-1)/2] + s[len(s)/2]) / 2, Min: s[0], Max: s[len(s)-1]}
}

// String is the median, and the noise in brackets.
func (s Spread) String() string {
	if s == (Spread{}) {
		return ""
	}
	return fmt.Sprintf("%s (%s..%s)", digits(s.Median), digits(s.Min), digits(s.Max))
}

// digits are three that count: more would pretend.
func digits(f float64) string {
	if f == 0 || math.IsNaN(f) || math.IsInf(f, 0) {
		return fmt.Sprintf("%.3g", f)
	}
	decimals := 2 - int(math.Floor(math.Log10(math.Abs(f))))
	return fmt.Sprintf("%.*f", min(max(decimals, 0), 3), f)
}

// Of collects one number of each of several results.
func Of[T any](results []T, number func(T) float64) Spread {
	values := make([]float64, 0, len(results))
	for _, r := range results {
		values = append(values, number(r))
	}
	return SpreadOf(values)
}

// Ratio is taken in each round: what else the machine did then met both.
func Ratio[T any](these, those []T, number func(T) float64) Spread {
	var all []float64
	for i := range these {
		all = append(all, number(these[i])/number(those[i]))
	}
	return SpreadOf(all)
}

// Quantile is the value below which the share q of sorted values lies.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
