package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Fairness holds the metrics of API Priority and Fairness that change with every request, with kube-apiserver's
// names. k8s.io/apiserver provides the other metrics; it looks up labels on each change.
type Fairness struct {
	estimated *prometheus.HistogramVec
	requests  *prometheus.GaugeVec
	seats     *prometheus.GaugeVec
	admitted  *prometheus.CounterVec
	waited    *prometheus.HistogramVec
	executed  *prometheus.HistogramVec
	length    *prometheus.HistogramVec
	waiting   *prometheus.GaugeVec
	wanted    *prometheus.GaugeVec
}

// NewFairness registers the metrics of API Priority and Fairness on reg.
func NewFairness(reg prometheus.Registerer) *Fairness {
	const prefix = "apiserver_flowcontrol_"
	flow := func(more ...string) []string { return append([]string{"priority_level", "flow_schema"}, more...) }
	seconds := []float64{0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30}
	return &Fairness{
		estimated: newHistogramVec(reg, prefix+"work_estimated_seats",
			"Seats that requests were estimated to need.", []float64{1, 2, 4, 8, 16, 32, 64, 100}, flow()...),
		requests: newGaugeVec(reg, prefix+"current_executing_requests",
			"Requests that have a seat. A watch has one until its initial events are out.", flow()...),
		seats:    newGaugeVec(reg, prefix+"current_executing_seats", "Seats that requests have.", flow()...),
		admitted: newCounterVec(reg, prefix+"dispatched_requests_total", "Requests that were given a seat.", flow()...),
		waited: newHistogramVec(reg, prefix+"request_wait_duration_seconds",
			"Time in a queue, by whether the request was served then.", seconds, flow("execute")...),
		executed: newHistogramVec(reg, prefix+"request_execution_seconds", "Time with a seat.", seconds, flow("type")...),
		length: newHistogramVec(reg, prefix+"request_queue_length_after_enqueue",
			"Requests in a queue, with the one that has just joined it.", []float64{0, 10, 25, 50, 100, 250, 500, 1000}, flow()...),
		waiting: newGaugeVec(reg, prefix+"current_inqueue_requests", "Requests that wait in queues.", flow()...),
		wanted:  newGaugeVec(reg, prefix+"current_inqueue_seats", "Seats that requests in queues wait for.", flow()...),
	}
}

// Flow returns the metrics of one flow schema at one priority level. A series is created when its first value is
// recorded.
func (f *Fairness) Flow(level, schema string) *Flow {
	observer := func(v *prometheus.HistogramVec, more ...string) func() prometheus.Observer {
		return sync.OnceValue(func() prometheus.Observer {
			return v.WithLabelValues(append([]string{level, schema}, more...)...)
		})
	}
	gauge := func(v *prometheus.GaugeVec) func() prometheus.Gauge {
		return sync.OnceValue(func() prometheus.Gauge { return v.WithLabelValues(level, schema) })
	}
	return &Flow{
		estimated: observer(f.estimated), requests: gauge(f.requests), seats: gauge(f.seats),
		admitted: sync.OnceValue(func() prometheus.Counter { return f.admitted.WithLabelValues(level, schema) }),
		waited:   observer(f.waited, "true"), gaveUp: observer(f.waited, "false"),
		regular: observer(f.executed, "regular"), watch: observer(f.executed, "watch"),
		length: observer(f.length), waiting: gauge(f.waiting), wanted: gauge(f.wanted),
	}
}

// Flow holds the metrics of one flow schema, resolved once so that requests need no lookups.
type Flow struct {
	estimated, waited, gaveUp, regular, watch, length func() prometheus.Observer
	requests, seats, waiting, wanted                  func() prometheus.Gauge
	admitted                                          func() prometheus.Counter
}

// Estimated records the estimated seats of a request.
func (f *Flow) Estimated(seats int) { f.estimated().Observe(float64(seats)) }

// Dispatched counts a request that received its seats.
func (f *Flow) Dispatched(seats int) {
	f.requests().Inc()
	f.seats().Add(float64(seats))
	f.admitted().Inc()
}

// Queued counts a request that waits for seats in a queue, which now has the given length.
func (f *Flow) Queued(length, seats int) {
	f.length().Observe(float64(length))
	f.waiting().Inc()
	f.wanted().Add(float64(seats))
}

// LeftQueue counts a request that no longer waits.
func (f *Flow) LeftQueue(seats int) {
	f.waiting().Dec()
	f.wanted().Add(-float64(seats))
}

// Waited records how long a request waited and whether it is then served.
func (f *Flow) Waited(served bool, d time.Duration) {
	if served {
		f.waited().Observe(d.Seconds())
		return
	}
	f.gaveUp().Observe(d.Seconds())
}

// Finished counts the end of a request that had its seats for d.
func (f *Flow) Finished(watch bool, d time.Duration) {
	f.requests().Dec()
	if watch {
		f.watch().Observe(d.Seconds())
		return
	}
	f.regular().Observe(d.Seconds())
}

// SeatsReleased counts seats that became free.
func (f *Flow) SeatsReleased(seats int) { f.seats().Add(-float64(seats)) }
