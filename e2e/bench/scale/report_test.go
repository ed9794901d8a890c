package scale

import (
	"math"
	"testing"
	"time"

	"portico.dev/e2e/environment"
)

func TestARequestsOwnLeavesOutWhatIsDoneAnyway(t *testing.T) {
	stretch := func(us int, requests int) environment.Interval {
		return environment.Interval{Server: time.Duration(us) * time.Microsecond, Answer: environment.Answer{Requests: requests, PerSecond: float64(requests)}}
	}
	all := []*subject{
		{row: &Row{}, stretches: []environment.Interval{stretch(20, 1000), stretch(20, 1000)}},
		// 60 s of a minute: a second in each of the two stretches, 500 us of each request.
		{row: &Row{IdleCPU: 60}, stretches: []environment.Interval{stretch(520, 1000), stretch(520, 3000)}},
		// A collection in one of three.
		{row: &Row{}, stretches: []environment.Interval{stretch(20, 1000), stretch(50, 1000)}},
	}
	summarize(all)
	for i, want := range []struct{ own, ratio float64 }{{20, 1}, {20, 1}, {35, 1.75}} {
		if got := all[i].row; math.Abs(got.Own-want.own) > 0.01 || math.Abs(got.OwnRatio-want.ratio) > 0.001 {
			t.Errorf("%d: %.2f us of its own, %.3fx; want %v", i, got.Own, got.OwnRatio, want)
		}
	}
}
