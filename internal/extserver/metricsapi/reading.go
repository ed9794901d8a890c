package metricsapi

import (
	"errors"
	"fmt"
	"time"
)

// minContainerAge is the minimum age at which the first window of a container may begin at its start. For younger containers,
// the startup would look like load. metrics-server has the same limit.
const minContainerAge = 10 * time.Second

// Reading contains the counters of a node or a container at one point in time.
type Reading struct {
	At time.Time
	// Started is when the counter was zero. Zero if unknown.
	Started time.Time
	// Seconds is the CPU time until At.
	Seconds    float64
	WorkingSet uint64
}

// Since returns the usage between previous and r.
func (r Reading) Since(previous Reading) (Usage, Span, error) {
	if previous.At.IsZero() {
		return Usage{}, Span{}, errors.New("the reading before this one failed; two in a row are needed")
	}
	window, spent := r.At.Sub(previous.At), r.Seconds-previous.Seconds
	switch {
	case window <= 0:
		return Usage{}, Span{}, fmt.Errorf("two readings %s apart", window)
	case spent < 0:
		// A processor was removed, or the counters were reset.
		return Usage{}, Span{}, errors.New("CPU counters ran backwards")
	}
	return Usage{Cores: spent / window.Seconds(), WorkingSet: r.WorkingSet}, Span{Timestamp: r.At, Window: window}, nil
}

// Pair contains the two readings of a rate.
type Pair struct{ from, to Reading }

// Next returns the pair after reading r. Kubelets repeat a reading until they have a newer one; the pair is unchanged then.
// If a container was restarted since the last reading, the pair starts over, with the start of the container as the first
// reading if the window is suitable.
func (p Pair) Next(r Reading) Pair {
	switch {
	case p.to.At.IsZero() || r.Started.After(p.to.At) || r.Seconds < p.to.Seconds:
		return Pair{from: startReading(r), to: r}
	case r.At.After(p.to.At):
		return Pair{from: p.to, to: r}
	}
	return p
}

// startReading returns the reading at the start of a young container. For other containers it returns the zero Reading,
// because the rate since the start would be the average over the lifetime.
func startReading(r Reading) Reading {
	if age := r.At.Sub(r.Started); r.Started.IsZero() || age < minContainerAge || age > 6*minContainerAge {
		return Reading{}
	}
	return Reading{At: r.Started, Started: r.Started}
}

// Usage returns the usage between the two readings. It returns false if there are fewer than two.
func (p Pair) Usage() (Usage, Span, bool) {
	u, s, err := p.to.Since(p.from)
	return u, s, err == nil
}

// PodKey identifies a pod.
type PodKey struct{ Namespace, Name string }

// History contains the last two readings of each container, by pod. The zero value is empty. It is not safe for concurrent
// use.
type History map[PodKey]map[string]Pair

// Next returns the history after the readings in now. It removes pods and containers that are not in now.
func (h History) Next(now map[PodKey]map[string]Reading) History {
	next := make(History, len(now))
	for key, containers := range now {
		pairs := make(map[string]Pair, len(containers))
		for name, r := range containers {
			pairs[name] = h[key][name].Next(r)
		}
		next[key] = pairs
	}
	return next
}

// Pods returns the usage of every pod with two readings of all its containers. Other pods are omitted, because an autoscaler
// would use the incomplete sum. The span of a pod is the span of the container that was read first.
func (h History) Pods() []PodUsage {
	out := make([]PodUsage, 0, len(h))
	for key, pairs := range h {
		if u, ok := pod(key, pairs); ok {
			out = append(out, u)
		}
	}
	return out
}

func pod(key PodKey, pairs map[string]Pair) (PodUsage, bool) {
	u := PodUsage{Namespace: key.Namespace, Name: key.Name, Containers: make([]ContainerUsage, 0, len(pairs))}
	for name, pair := range pairs {
		used, span, ok := pair.Usage()
		if !ok {
			return PodUsage{}, false
		}
		if u.Timestamp.IsZero() || span.Timestamp.Before(u.Timestamp) {
			u.Span = span
		}
		u.Containers = append(u.Containers, ContainerUsage{Name: name, Usage: used})
	}
	return u, len(u.Containers) > 0
}
