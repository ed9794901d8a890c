package fairness

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	fcmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"portico.dev/internal/metrics"
)

// The metrics of package fairness equal k8s.io/apiserver's in names, labels, buckets and values.
func TestMetricsMatchAPIServer(t *testing.T) {
	fcmetrics.Register()
	const level, schema = "compared", "a"
	reg := prometheus.NewRegistry()
	ours := metrics.NewFairness(reg).Flow(level, schema)
	if families, err := reg.Gather(); err != nil || len(families) != 0 {
		t.Errorf("metrics before the first count = %v, error %v, want none", families, err)
	}
	ctx := t.Context()
	watching := apirequest.WithRequestInfo(ctx, &apirequest.RequestInfo{Verb: "watch"})
	fcmetrics.ObserveWorkEstimatedSeats(level, schema, 3)
	ours.Estimated(3)
	for _, n := range []int{7, 30} {
		fcmetrics.ObserveQueueLength(ctx, level, schema, n)
		fcmetrics.AddRequestsInQueues(ctx, level, schema, 1)
		fcmetrics.AddSeatsInQueues(ctx, level, schema, 3)
		ours.Queued(n, 3)
	}
	fcmetrics.AddRequestsInQueues(ctx, level, schema, -1)
	fcmetrics.AddSeatsInQueues(ctx, level, schema, -3)
	ours.LeftQueue(3)
	for range 2 {
		fcmetrics.AddRequestsExecuting(ctx, level, schema, 1)
		fcmetrics.AddSeatConcurrencyInUse(level, schema, 3)
		fcmetrics.AddDispatch(ctx, level, schema)
		ours.Dispatched(3)
	}
	fcmetrics.ObserveWaitingDuration(ctx, level, schema, "true", time.Second)
	ours.Waited(true, time.Second)
	fcmetrics.ObserveWaitingDuration(ctx, level, schema, "false", 7*time.Second)
	ours.Waited(false, 7*time.Second)
	fcmetrics.ObserveExecutionDuration(ctx, level, schema, 30*time.Millisecond)
	fcmetrics.AddRequestsExecuting(ctx, level, schema, -1)
	ours.Finished(false, 30*time.Millisecond)
	fcmetrics.AddSeatConcurrencyInUse(level, schema, -3)
	ours.SeatsReleased(3)
	fcmetrics.ObserveExecutionDuration(watching, level, schema, 3*time.Second)
	fcmetrics.AddRequestsExecuting(ctx, level, schema, -1)
	ours.Finished(true, 3*time.Second)

	theirs := map[string][]*dto.Metric{}
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		theirs[f.GetName()] = slices.DeleteFunc(f.GetMetric(), func(m *dto.Metric) bool { return labelOf(m, "priority_level") != level })
	}
	families, err = reg.Gather()
	if err != nil || len(families) != 9 {
		t.Fatalf("%d metric families, error %v, want 9", len(families), err)
	}
	for _, f := range families {
		if got, want := said(f.GetMetric()), said(theirs[f.GetName()]); !slices.Equal(got, want) {
			t.Errorf("%s =\n%v\nwant as in k8s.io/apiserver\n%v", f.GetName(), got, want)
		}
	}
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func said(list []*dto.Metric) (all []string) {
	for _, m := range list {
		if h := m.GetHistogram(); h != nil {
			h.CreatedTimestamp = nil
		}
		if c := m.GetCounter(); c != nil {
			c.CreatedTimestamp = nil
		}
		all = append(all, m.String())
	}
	return all
}
