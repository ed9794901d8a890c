package metricsapi

import (
	"errors"
	"fmt"
	"time"
)

// minContainerAge is how old a container must be before its whole life may count as its first window. Younger, the start-up
// would look like load; metrics-server draws the line at the same age.
const minContainerAge = 10 * time.Second

// Reading is the counters of a node or a container at one moment.
type Reading struct {
	At time.Time
	// Started is when the counter was zero, if that is known.
	Started time.Time
	// Seconds is the CPU time spent until At.
	Seconds    float64
	WorkingSet uint64
}

// Since is what happened after previous.
func (r Reading) Since(previous Reading) (Usage, Span, error) {
	if previous.At.IsZero() {
		return Usage{}, Span{}, errors.New("the reading before this one failed; two in a row are needed")
	}
	window, spent := r.At.Sub(previous.At), r.Seconds-previous.Seconds
	switch {
	case window <= 0:
		return Usage{}, Span{}, fmt.Errorf("two readings %s apart", window)
	case spent < 0:
		// A processor was taken out, or the counters began anew.
		return Usage{}, Span{}, errors.New("CPU counters ran backwards")
	}
	return Usage{Cores: spent / window.Seconds(), WorkingSet: r.WorkingSet}, Span{Timestamp: r.At, Window: window}, nil
}

// Pair is the two readings that make a rate.
type Pair struct{ from, to Reading }

// Next is the pair once r has been read. Kubelets repeat a reading until they have a newer one: the pair stays then.
// A container that began anew since the last reading starts over, from its own start if that is a window worth telling.
func (p Pair) Next(r Reading) Pair {
	switch {
	case p.to.At.IsZero() || r.Started.After(p.to.At) || r.Seconds < p.to.Seconds:
		return Pair{from: startReading(r), to: r}
	case r.At.After(p.to.At):
		return Pair{from: p.to, to: r}
	}
	return p
}

// startReading is the reading at the start of a container that is young, and no reading otherwise: since a start long ago
// the rate would be the average over a life.
func startReading(r Reading) Reading {
	if age := r.At.Sub(r.Started); r.Started.IsZero() || age < minContainerAge || age > 6*minContainerAge {
		return Reading{}
	}
	return Reading{At: r.Started, Started: r.Started}
}

// Usage is what happened between the two, false while there are not two.
func (p Pair) Usage() (Usage, Span, bool) {
	u, s, err := p.to.Since(p.from)
	return u, s, err == nil
}

// PodKey names a pod.
type PodKey struct{ Namespace, Name string }

// History is the last two readings of each container, by pod. The zero value is empty. It is not safe for concurrent
// use; whoever samples owns it.
type History map[PodKey]map[string]Pair

// Next is the history once now has been read. Pods and containers that are gone from now are forgotten.
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

// Pods is the usage of every pod all of whose containers have two readings: an autoscaler that saw half a pod would
// take it for the whole. The span of a pod is that of its container that was read first.
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
