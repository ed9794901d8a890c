package metricsapi

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
