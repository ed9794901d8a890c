package routing

import "portico.dev/internal/routes/v1alpha1"

// Mirror configures where copies of reads are sent, and which differences in their responses are ignored.
type Mirror struct {
	// Backend is an index of Route.Backends.
	Backend int
	// Percent is the percentage of reads that are copied, from 0 to 100.
	Percent int
	// Ignore are the fields of APIRouteRule.Mirror.Ignore.
	Ignore []string
}

func (r *Route) compileMirror(from *v1alpha1.Mirror) *Mirror {
	if from == nil {
		return nil
	}
	m := &Mirror{Backend: r.backend(from.Backend), Percent: 100, Ignore: from.Ignore}
	if from.Percent != nil {
		m.Percent = int(*from.Percent)
	}
	return m
}

// mirrors reports whether a backend receives copies.
func (r *Route) mirrors(backend int) bool {
	for i := range r.rules {
		if rule := &r.rules[i]; rule.useful && rule.mirror != nil && rule.mirror.Backend == backend {
			return true
		}
	}
	return false
}

// MayMirror reports whether a copy of a read has no effect at another server: a get or list of objects, of their
// status or scale, or of metrics. A get of any other subresource may have effects.
func (q *Request) MayMirror() bool {
	if q.Verb != "get" && q.Verb != "list" {
		return false
	}
	return q.Subresource == "" || q.Subresource == "status" || q.Subresource == "scale"
}
