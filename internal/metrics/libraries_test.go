package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestLibrariesLeavesOutUnusedSeries(t *testing.T) {
	reg := prometheus.NewRegistry()
	NewProcess(reg)
	newHistogramVec(reg, "apiserver_flowcontrol_demand_seats", "Omitted.", nil, "priority_level").WithLabelValues("a").Observe(1)
	newHistogramVec(reg, "unused_seconds", "Has no observation.", nil, "name").WithLabelValues("a")
	newHistogram(reg, "plain_seconds", "Has no labels.", []float64{1})
	newGaugeVec(reg, "workqueue_depth", "Is not a histogram.", "name").WithLabelValues("a")
	work := newHistogramVec(reg, "workqueue_work_duration_seconds", "Has small buckets.", prometheus.ExponentialBuckets(10e-9, 10, 5), "name")
	work.WithLabelValues("a")
	work.WithLabelValues("b").Observe(5e-7)
	work.WithLabelValues("b").Observe(5e-5)
	want := `
# HELP plain_seconds Has no labels.
# TYPE plain_seconds histogram
plain_seconds_bucket{le="1"} 0
plain_seconds_bucket{le="+Inf"} 0
plain_seconds_sum 0
plain_seconds_count 0
# HELP workqueue_depth Is not a histogram.
# TYPE workqueue_depth gauge
workqueue_depth{name="a"} 0
# HELP workqueue_work_duration_seconds Has small buckets.
# TYPE workqueue_work_duration_seconds histogram
workqueue_work_duration_seconds_bucket{name="b",le="9.999999999999999e-06"} 1
workqueue_work_duration_seconds_bucket{name="b",le="9.999999999999999e-05"} 2
workqueue_work_duration_seconds_bucket{name="b",le="+Inf"} 2
workqueue_work_duration_seconds_sum{name="b"} 5.05e-05
workqueue_work_duration_seconds_count{name="b"} 2
`
	// Twice, because a removal must not change the registry.
	for range 2 {
		if err := testutil.GatherAndCompare(Libraries(reg), strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	}
	if n, err := testutil.GatherAndCount(reg, "workqueue_work_duration_seconds", "unused_seconds", "apiserver_flowcontrol_demand_seats"); err != nil || n != 4 {
		t.Errorf("series in the registry = %d, %v, want all 4", n, err)
	}
}

// The bounds are the literals of k8s.io/apiserver.
func TestLibrariesKeepsBucketsThatShowSaturation(t *testing.T) {
	const name = "apiserver_flowcontrol_priority_level_seat_utilization"
	reg := prometheus.NewRegistry()
	newHistogram(reg, name, "Seats.", []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1}).Observe(0.95)
	want := `
# HELP apiserver_flowcontrol_priority_level_seat_utilization Seats.
# TYPE apiserver_flowcontrol_priority_level_seat_utilization histogram
apiserver_flowcontrol_priority_level_seat_utilization_bucket{le="0"} 0
apiserver_flowcontrol_priority_level_seat_utilization_bucket{le="0.5"} 0
apiserver_flowcontrol_priority_level_seat_utilization_bucket{le="0.9"} 0
apiserver_flowcontrol_priority_level_seat_utilization_bucket{le="0.99"} 1
apiserver_flowcontrol_priority_level_seat_utilization_bucket{le="1"} 1
apiserver_flowcontrol_priority_level_seat_utilization_bucket{le="+Inf"} 1
apiserver_flowcontrol_priority_level_seat_utilization_sum 0.95
apiserver_flowcontrol_priority_level_seat_utilization_count 1
`
	if err := testutil.GatherAndCompare(Libraries(reg), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
