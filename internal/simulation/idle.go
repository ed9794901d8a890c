package simulation

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"portico.dev/internal/simulation/network"
)

var idleAtRest = []condition{
	{"without requests, nothing is counted as in progress", (*history).checkIdle},
	{"goroutines, connections and long-running requests do not accumulate", (*history).checkGrowth},
}

// idleMetrics are gauges that are at most this large, in sum over their labels, while a front door serves only the scrape. What
// is held forever reduces the capacity of the front door until it refuses everything.
var idleMetrics = map[string]float64{
	"apiserver_current_inflight_requests":            1,
	"apiserver_flowcontrol_current_executing_seats":  1,
	"apiserver_flowcontrol_current_inqueue_requests": 0,
	"apiserver_flowcontrol_current_inqueue_seats":    0,
	"portico_backend_ejected_endpoints":              0,
	"portico_backend_upgraded_connections":           0,
	"portico_egress_connections":                     0,
	"portico_egress_pending_dials":                   0,
	"portico_garbage_queue_depth":                    0,
	"portico_overload_level":                         0,
	"portico_shared_watch_clients":                   0,
	"portico_shared_watches":                         0,
}

// growingMetrics are gauges of which any value can be right, but not one that grows from history to history.
var growingMetrics = []string{"apiserver_longrunning_requests", "portico_backend_requests_in_flight"}

// checkIdle returns an error while a front door counts something as in progress.
func (h *history) checkIdle(ctx context.Context) error {
	for _, f := range h.fronts {
		sums, err := h.sums(ctx, f, slices.Collect(maps.Keys(idleMetrics)))
		if err != nil {
			return err
		}
		for name, most := range idleMetrics {
			if sums[name] > most {
				return fmt.Errorf("%s: %s is %v, want at most %v", f.name, name, sums[name], most)
			}
		}
	}
	return nil
}

// sums returns the sums of metrics of a front door over their labels.
func (w *world) sums(ctx context.Context, f *front, names []string) (map[string]float64, error) {
	series, err := w.metrics(ctx, f, names...)
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
	// lastSamples are the latest samples. The smallest counts, so that what is only slow to end is not reported.
	lastSamples = 3
	// tolerance is the growth that is not reported.
	tolerance = 3
)

// sample is the number of goroutines, connections and requests at rest, by what they are.
type sample map[string]int

// checkGrowth takes a sample at rest. It returns an error if a quantity has grown in all of the latest samples.
func (h *history) checkGrowth(ctx context.Context) error {
	s := sample{}
	countGoroutines(s)
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

// countGoroutines counts the goroutines of bubbles by the function that they execute.
func countGoroutines(s sample) {
	for trace := range strings.SplitSeq(allStacks(), "\n\n") {
		header, frames, _ := strings.Cut(trace, "\n")
		if strings.Contains(header, "synctest bubble") {
			s["goroutines of "+executedBy(frames)]++
		}
	}
}

// executedBy returns the outermost function of a stack, and the function that started it if the name is a general one. Only these
// two do not depend on what the goroutine waits for, and the creator alone can differ for the same purpose.
func executedBy(frames string) string {
	stack, creator, _ := strings.Cut(frames, "\ncreated by ")
	lines := strings.Split(stack, "\n")
	outermost := lines[max(0, len(lines)-2)] // the last line is its position
	if at := strings.LastIndexByte(outermost, '('); at > 0 {
		outermost = outermost[:at]
	}
	if strings.HasPrefix(outermost, "sync.") {
		creator, _, _ = strings.Cut(creator, " in goroutine")
		return outermost + " of " + creator
	}
	return outermost
}

func allStacks() string {
	for size := 2 << 20; ; size *= 2 {
		text := make([]byte, size)
		if n := runtime.Stack(text, true); n < size {
			return string(text[:n])
		}
	}
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
	}
}

// countRequests counts what the front doors together serve. Any of them may lead and watch for all.
func (w *world) countRequests(ctx context.Context, s sample) error {
	for _, f := range w.fronts {
		sums, err := w.sums(ctx, f, growingMetrics)
		if err != nil {
			return err
		}
		for name, value := range sums {
			s[name] += int(value)
		}
	}
	return nil
}
