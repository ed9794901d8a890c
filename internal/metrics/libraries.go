package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// omitted contains the metrics of the Kubernetes libraries that Libraries leaves out. All have the stability level ALPHA.
// docs/metrics.md lists the metrics to use instead.
var omitted = map[string]bool{
	"apiserver_admission_step_admission_duration_seconds_summary": true,
	"apiserver_flowcontrol_demand_seats":                          true,
	"apiserver_flowcontrol_priority_level_request_utilization":    true,
	"apiserver_flowcontrol_read_vs_write_current_requests":        true,
	"apiserver_flowcontrol_watch_count_samples":                   true,
	"apiextensions_apiserver_validation_ratcheting_seconds":       true,
}

// keptBuckets reports, for some histograms of the Kubernetes libraries, whether Libraries keeps the bucket with an upper
// bound. Counts of buckets are cumulative, so the other buckets remain correct.
var keptBuckets = map[string]func(upperBound float64) bool{
	"apiserver_flowcontrol_priority_level_seat_utilization": func(upperBound float64) bool {
		return slices.Contains([]float64{0, 0.5, 0.9, 0.99, 1}, upperBound)
	},
	"workqueue_queue_duration_seconds": isAboveOneMicrosecond,
	"workqueue_work_duration_seconds":  isAboveOneMicrosecond,
}

// isAboveOneMicrosecond allows for the rounding errors of exponential buckets.
func isAboveOneMicrosecond(upperBound float64) bool { return upperBound > 2e-6 }

// Libraries gathers from g, the registry of the Kubernetes libraries, without the series that cost the most and are used
// the least:
//   - go_* and process_*, because the registry of the program has them,
//   - the metrics in omitted,
//   - the buckets that keptBuckets excludes,
//   - series of histograms with labels and without an observation. Of the work queues of a new front door, half are unused.
func Libraries(g prometheus.Gatherer) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := g.Gather()
		return slices.DeleteFunc(families, func(f *dto.MetricFamily) bool {
			if omitted[f.GetName()] || describesProcess(f.GetName()) {
				return true
			}
			if f.GetType() == dto.MetricType_HISTOGRAM {
				reduce(f)
			}
			return len(f.Metric) == 0
		}), err
	})
}

// reduce removes unused series and buckets from a gathered histogram. The registry makes both slices for each Gather.
func reduce(f *dto.MetricFamily) {
	f.Metric = slices.DeleteFunc(f.Metric, func(m *dto.Metric) bool {
		return len(m.GetLabel()) > 0 && m.GetHistogram().GetSampleCount() == 0
	})
	keep := keptBuckets[f.GetName()]
	if keep == nil {
		return
	}
	for _, m := range f.Metric {
		h := m.GetHistogram()
		h.Bucket = slices.DeleteFunc(h.Bucket, func(b *dto.Bucket) bool { return !keep(b.GetUpperBound()) })
	}
}
