package fairness

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	fcmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
)

// told is a gauge that records its values.
type told struct {
	fcmetrics.RatioedGauge // No other method is called.

	mu  sync.Mutex // guards all fields
	all []float64
}

func (g *told) Set(x float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = append(g.all, x)
}

// values returns the recorded values.
func (g *told) values() []float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.all)
}

func TestGaugesAreUpdatedAtIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var demand, seats, executing, waiting told
		s := newGaugeUpdater(libraryGauges{
			requests: fcmetrics.RatioedGaugePair{RequestsWaiting: &waiting, RequestsExecuting: &executing}, seats: &seats, demand: &demand,
		})
		change := func(n int) {
			s.addDemand(n)
			s.seats.Add(int64(n))
			s.executing.Add(int64(n))
			s.schedule(time.Now())
		}
		time.Sleep(time.Second) // of the bubble, as below
		change(1)               // The last update was long ago: reported at once.
		for range 3 {
			change(1)
		}
		change(-4)
		change(2)
		if !slices.Equal(demand.values(), []float64{1}) {
			t.Errorf("demand at once = %v, want [1]", demand.values())
		}
		time.Sleep(updateInterval)
		synctest.Wait()
		if want := []float64{1, 4, 2}; !slices.Equal(demand.values(), want) {
			t.Errorf("demand = %v, want %v with the maximum in between", demand.values(), want)
		}
		if want := []float64{1, 2}; !slices.Equal(seats.values(), want) || !slices.Equal(executing.values(), want) || !slices.Equal(waiting.values(), []float64{0, 0}) {
			t.Errorf("seats = %v, executing = %v, waiting = %v, want %v, %v and [0 0]", seats.values(), executing.values(), waiting.values(), want, want)
		}
		change(-2)
		time.Sleep(time.Second)
		synctest.Wait()
		if all := demand.values(); len(all) != 5 || all[4] != 0 { // The maximum since then was 2.
			t.Errorf("demand at the end = %v, want 5 values that end with 0", demand.values())
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(seats.values()) != 3 {
			t.Errorf("seats without a change = %v, want 3 values", seats.values())
		}
	})
}

// After concurrent changes the last reported value is correct.
func TestConcurrentGaugeUpdatesReportLastValue(t *testing.T) {
	var demand, seats, executing, waiting told
	s := newGaugeUpdater(libraryGauges{
		requests: fcmetrics.RatioedGaugePair{RequestsWaiting: &waiting, RequestsExecuting: &executing}, seats: &seats, demand: &demand,
	})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 20_001 {
				n := 1 - 2*(i%2) // The last change stays.
				s.addDemand(n)
				s.seats.Add(int64(n))
				s.schedule(time.Now())
			}
		})
	}
	all.Wait()
	deadline := time.Now().Add(30 * time.Second)
	for last := 0.0; last != 8; {
		if time.Now().After(deadline) {
			t.Fatalf("last value = %v, want 8", last)
		}
		seats.mu.Lock()
		last = seats.all[len(seats.all)-1]
		seats.mu.Unlock()
	}
}
