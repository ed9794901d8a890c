package simulation

import (
	"context"
	"fmt"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"

	"portico.dev/internal/simulation/network"
)

var idleAtRest = []condition{
	{"without requests, nothing is counted as in progress", (*history).checkIdle},
	{"goroutines, connections and long-running requests do not accumulate", (*history).checkGrowth},
}

// idleMetrics are gauges that are at most this large, in sum over their labels, while a front door serves only the scrape. A seat that is
// held forever reduces the capacity of the front door until it refuses everything. What is released twice removes its limits.
var idleMetrics = map[string]float64{
	"apiserver_current_inflight_requests":            1,
	"apiserver_flowcontrol_current_executing_seats":  1,
	"apiserver_flowcontrol_current_inqueue_requests": 0,
	"apiserver_flowcontrol_current_inqueue_seats":    0,
	"portico_backend_ejected_endpoints":              0,
	"portico_backend_requests_in_flight":             0,
	"portico_backend_upgraded_connections":           0,
	"portico_buffered_bytes":                         0,
	"portico_egress_connections":                     0,
	"portico_egress_pending_dials":                   0,
	"portico_garbage_queue_depth":                    0,
	"portico_overload_level":                         0,
	"portico_shared_watch_clients":                   0,
	lingeringMetric:                                  0,
}

// lingeringMetric is the one of idleMetrics that becomes 0 only ten seconds after the last request. Only histories with a sample wait
// for it.
const lingeringMetric = "portico_shared_watches"

// growingMetrics are gauges of which any value can be right, but not one that grows from history to history.
var growingMetrics = []string{"apiserver_longrunning_requests", "portico_peer_requests_serving"}

// checkIdle returns an error while a front door counts something as in progress.
func (h *history) checkIdle(ctx context.Context) error {
	for _, f := range h.fronts {
		sums, err := h.sums(ctx, f)
		if err != nil {
			return err
		}
		for name, most := range idleMetrics {
			if name == lingeringMetric && !h.isSampled() {
				continue
			}
			if sums[name] < 0 || sums[name] > most {
				return fmt.Errorf("%s: %s is %v, want 0 to %v", f.name, name, sums[name], most)
			}
		}
	}
	return h.checkGatewaysIdle()
}

// sums returns the sums of the metrics of a front door over their labels.
func (h *history) sums(ctx context.Context, f *front) (map[string]float64, error) {
	series, err := h.scrape(ctx, f)
	if err != nil {
		return nil, err
	}
	sums := make(map[string]float64)
	for key, value := range series {
		name, _, _ := strings.Cut(key, "{")
		sums[name] += value
	}
	return sums, nil
}

const (
	// firstSamples are the samples of a world that show how large quantities may be. Later ones are compared with the largest.
	firstSamples = 3
	// lastSamples are the latest samples. The smallest counts, so that slow ends are not reported.
	lastSamples = 3
	// tolerance is the growth that is not reported.
	tolerance = 3
)

// sample is the number of goroutines, connections and requests at rest, by their kind.
type sample map[string]int

// sampleEvery is the number of histories for each sample, which takes as much CPU time as a tenth of a history.
const sampleEvery = 8

// isSampled reports whether a sample is taken at the end of the history.
func (h *history) isSampled() bool { return h.seed%sampleEvery == 0 }

// uncounted are functions whose goroutines are not counted.
var uncounted = []string{
	"k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked", // exists for some seconds after a request
	// etcd serves the connections of a front door that has crashed behind a blocked link until its keep-alive probes fail.
	"go.etcd.io/etcd/server/", "google.golang.org/grpc.(*Server)", "google.golang.org/grpc/internal/transport.",
}

// checkGrowth takes a sample at rest. It returns an error if a quantity has grown in all of the latest samples.
func (h *history) checkGrowth(ctx context.Context) error {
	if !h.isSampled() {
		return nil
	}
	s := sample{}
	if err := h.countGoroutines(s); err != nil {
		return err
	}
	h.countConnections(s)
	if err := h.countRequests(ctx, s); err != nil {
		return err
	}
	h.samples = append(h.samples, s)
	if len(h.samples) < firstSamples+lastSamples {
		return nil
	}
	first, last := h.samples[:firstSamples], h.samples[len(h.samples)-lastSamples:]
	for what := range s {
		before, now := 0, s[what]
		for _, old := range first {
			before = max(before, old[what])
		}
		for _, late := range last {
			now = min(now, late[what])
		}
		if now > before+tolerance {
			h.violate("goroutines, connections and long-running requests do not accumulate",
				"%s: at least %d at rest after the last %d histories, at most %d after the first %d", what, now, lastSamples, before, firstSamples)
		}
	}
	return nil
}

// worldLabel is the label of all goroutines of a world in profiles. Several worlds run in one process.
const worldLabel = "world"

// labelGoroutines sets the label of the calling goroutine, which its children inherit.
func labelGoroutines(name string) {
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(worldLabel, name)))
}

// countGoroutines counts the goroutines of the world by the function that they execute: the outermost one of their stack that is
// not of package sync. The profile resolves each different stack once, which a dump of all goroutines does not.
func (w *world) countGoroutines(s sample) error {
	var text strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil {
		return err
	}
	_, stacks, _ := strings.Cut(text.String(), "\n") // the first line is a title
	for stack := range strings.SplitSeq(strings.TrimSpace(stacks), "\n\n") {
		lines := strings.Split(strings.TrimSpace(stack), "\n")
		if len(lines) < 2 || !strings.Contains(lines[1], fmt.Sprintf("%q:%q", worldLabel, w.name)) {
			continue
		}
		number, _, _ := strings.Cut(lines[0], " @ ")
		count, err := strconv.Atoi(number)
		if err != nil {
			return fmt.Errorf("read the profile of goroutines: %q: %w", lines[0], err)
		}
		name := executedBy(lines[1:])
		if !slices.ContainsFunc(uncounted, func(t string) bool { return strings.HasPrefix(name, t) }) {
			s["goroutines of "+name] += count
		}
	}
	return nil
}

// executedBy returns the name in the last line of a stack that is not of package sync.
func executedBy(lines []string) string {
	for _, line := range slices.Backward(lines) {
		fields := strings.Fields(line)
		if len(fields) < 3 || strings.HasPrefix(fields[2], "sync.") {
			continue
		}
		name, _, _ := strings.Cut(fields[2], "+0x")
		return name
	}
	return "unknown"
}

// countConnections counts the connections of each pair of hosts.
func (w *world) countConnections(s sample) {
	count := func(f *front, name string, to *network.Host) {
		s["connections of "+f.name+" and "+name] = w.net.Open(f.host, to)
	}
	for i, f := range w.fronts {
		count(f, "clients", w.clientHost)
		count(f, "etcd", w.etcd.host)
		for _, b := range w.backends {
			count(f, b.name, b.host)
		}
		for _, o := range w.fronts[i+1:] {
			count(f, o.name, o.host)
		}
		for _, g := range w.gateways {
			count(f, g.name, g.host)
		}
	}
	for _, g := range w.gateways {
		for _, b := range w.backends {
			s["connections of "+g.name+" and "+b.name] = w.net.Open(g.host, b.host)
		}
	}
}

// countRequests counts the requests that the front doors and gateways serve together. Any of them may lead and watch for all.
func (h *history) countRequests(ctx context.Context, s sample) error {
	for _, f := range h.fronts {
		sums, err := h.sums(ctx, f)
		if err != nil {
			return err
		}
		for _, name := range growingMetrics {
			if sums[name] < 0 {
				return fmt.Errorf("%s: %s is %v, want at least 0", f.name, name, sums[name])
			}
			s[name] += int(sums[name])
		}
	}
	for _, g := range h.gateways {
		sums, err := g.sums()
		if err != nil {
			return err
		}
		for _, name := range growingMetrics {
			s[name] += int(sums[name])
		}
	}
	return nil
}
