package metricsapi

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"portico.dev/pkg/extension"
)

// maxWarnings bounds what a measurement may say of itself: a source may pass on what a server says.
const maxWarnings = 10

// Cache shows the latest measurement of a source, and is a Source itself. The zero value shows nothing.
type Cache struct{ latest atomic.Pointer[Measurement] }

// Measurement is everything that a source knows at one moment.
type Measurement struct {
	Nodes []NodeUsage
	Pods  []PodUsage
	// Warnings go with every answer made of this: what is missing in it, and why.
	Warnings []string
	// Expires is when this is not shown any more: old numbers under a new request would be a lie that autoscalers
	// act on. Zero: never.
	Expires time.Time

	published time.Time
}

// Publish replaces what is shown. The cache owns m's slices from here on. What is told twice, as of a pod that has
// moved to another node, is shown as it was measured last.
func (b *Cache) Publish(m Measurement) {
	m.Nodes = newest(m.Nodes, func(a, b *NodeUsage) int { return cmp.Compare(a.Name, b.Name) }, func(u *NodeUsage) time.Time { return u.Timestamp })
	m.Pods = newest(m.Pods, func(a, b *PodUsage) int { return comparePods(a, b.Namespace, b.Name) }, func(u *PodUsage) time.Time { return u.Timestamp })
	for i := range m.Pods {
		slices.SortFunc(m.Pods[i].Containers, func(a, b ContainerUsage) int { return cmp.Compare(a.Name, b.Name) })
	}
	m.Warnings = m.Warnings[:min(len(m.Warnings), maxWarnings)]
	m.published = time.Now()
	b.latest.Store(&m)
}

// Nodes are those that q names.
func (b *Cache) Nodes(ctx context.Context, q extension.Query) ([]NodeUsage, error) {
	m := b.read(ctx)
	if m == nil {
		return nil, nil
	}
	if q.Name == "" {
		return m.Nodes, nil
	}
	i, found := slices.BinarySearchFunc(m.Nodes, q.Name, func(u NodeUsage, name string) int { return cmp.Compare(u.Name, name) })
	if !found {
		return nil, nil
	}
	return m.Nodes[i : i+1 : i+1], nil
}

// Pods are those of the namespace that q names.
func (b *Cache) Pods(ctx context.Context, q extension.Query) ([]PodUsage, error) {
	m := b.read(ctx)
	if m == nil {
		return nil, nil
	}
	if q.Namespace == "" {
		return m.Pods, nil
	}
	from, found := slices.BinarySearchFunc(m.Pods, q, func(u PodUsage, q extension.Query) int { return comparePods(&u, q.Namespace, q.Name) })
	if q.Name != "" {
		if !found {
			return nil, nil
		}
		return m.Pods[from : from+1 : from+1], nil
	}
	rest := m.Pods[from:]
	n, _ := slices.BinarySearchFunc(rest, q.Namespace, func(u PodUsage, ns string) int {
		if u.Namespace == ns {
			return -1
		}
		return cmp.Compare(u.Namespace, ns)
	})
	return rest[:n:n], nil
}

func (b *Cache) read(ctx context.Context) *Measurement {
	m := b.latest.Load()
	if m == nil {
		return nil
	}
	if m.expired() {
		extension.Warn(ctx, "nothing was measured since "+m.published.UTC().Format(time.RFC3339)+", and what was is too old to be shown")
		return nil
	}
	for _, text := range m.Warnings {
		extension.Warn(ctx, text)
	}
	return m
}

func comparePods(u *PodUsage, namespace, name string) int {
	return cmp.Or(cmp.Compare(u.Namespace, namespace), cmp.Compare(u.Name, name))
}

// newest sorts and keeps of equals the one that was measured last.
func newest[U any](in []U, compare func(a, b *U) int, at func(*U) time.Time) []U {
	slices.SortFunc(in, func(a, b U) int { return cmp.Or(compare(&a, &b), at(&b).Compare(at(&a))) })
	return slices.CompactFunc(in, func(a, b U) bool { return compare(&a, &b) == 0 })
}

// Empty tells whether there is nothing to show.
func (b *Cache) Empty() bool {
	m := b.latest.Load()
	return m == nil || m.expired() || len(m.Nodes)+len(m.Pods) == 0
}

// Filled is nil once there is something to show; trouble says why there may be nothing.
func (b *Cache) Filled(trouble error) error {
	if b.Empty() {
		return errors.Join(errors.New("no metrics to store yet"), trouble)
	}
	return nil
}

func (m *Measurement) expired() bool { return !m.Expires.IsZero() && time.Now().After(m.Expires) }

// Usage is what something used during a window.
type Usage struct {
	// Cores is CPU time per time: 1.5 is one and a half processors busy.
	Cores float64
	// WorkingSet is memory in bytes that cannot be reclaimed at once, at the end of the window.
	WorkingSet uint64
}

// Span is when it was measured.
type Span struct {
	// Timestamp is the end of the window, Window its measured length.
	Timestamp time.Time
	Window    time.Duration
}

// NodeUsage is what one node used.
type NodeUsage struct {
	Name string
	// Labels are those of the Node object, by which clients select.
	Labels map[string]string
	Usage
	Span
}

// PodUsage is what the containers of one pod used.
type PodUsage struct {
	Namespace, Name string
	// Labels are those of the Pod object, by which clients and autoscalers select.
	Labels map[string]string
	Span
	// Containers are all containers of the pod: an autoscaler takes a missing one for a pod without metrics.
	Containers []ContainerUsage
}

// ContainerUsage is what one container used.
type ContainerUsage struct {
	Name string
	Usage
}

// Source tells what nodes and pods use now. Nothing, and no error, is the answer while nothing has been measured yet.
// It may heed q.Namespace and q.Name; the host selects anyway. What it returns is shared, and nobody changes it: the same
// slice means the same content.
type Source interface {
	Nodes(ctx context.Context, q extension.Query) ([]NodeUsage, error)
	Pods(ctx context.Context, q extension.Query) ([]PodUsage, error)
}
