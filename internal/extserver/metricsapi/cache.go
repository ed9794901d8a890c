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

// maxWarnings limits the warnings of a measurement, because a source may forward the warnings of a server.
const maxWarnings = 10

// Cache holds the latest measurement of a source and implements Source. The zero value is empty.
type Cache struct{ latest atomic.Pointer[Measurement] }

// Measurement contains all data of a source at one point in time.
type Measurement struct {
	Nodes []NodeUsage
	Pods  []PodUsage
	// Warnings are added to every response with this measurement. They report missing data and the reason.
	Warnings []string
	// Expires is when the measurement must no longer be served, because autoscalers would act on outdated values. Zero means
	// never.
	Expires time.Time

	published time.Time
}

// Publish replaces the measurement. The cache owns the slices of m afterwards. If a node or pod occurs twice, such as a pod
// that has moved to another node, the most recent entry remains.
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

// Nodes returns the nodes that q selects.
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

// Pods returns the pods that q selects.
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

// newest sorts in and keeps only the most recent of equal elements.
func newest[U any](in []U, compare func(a, b *U) int, at func(*U) time.Time) []U {
	slices.SortFunc(in, func(a, b U) int { return cmp.Or(compare(&a, &b), at(&b).Compare(at(&a))) })
	return slices.CompactFunc(in, func(a, b U) bool { return compare(&a, &b) == 0 })
}

// Empty reports whether there is nothing to serve.
func (b *Cache) Empty() bool {
	m := b.latest.Load()
	return m == nil || m.expired() || len(m.Nodes)+len(m.Pods) == 0
}

// Filled returns nil if there is data to serve, and otherwise an error that includes trouble.
func (b *Cache) Filled(trouble error) error {
	if b.Empty() {
		return errors.Join(errors.New("no metrics to store yet"), trouble)
	}
	return nil
}

func (m *Measurement) expired() bool { return !m.Expires.IsZero() && time.Now().After(m.Expires) }

// Usage is the usage of a node or a container during a window.
type Usage struct {
	// Cores is CPU time per time: 1.5 means that one and a half processors were busy.
	Cores float64
	// WorkingSet is the memory in bytes that cannot be reclaimed immediately, at the end of the window.
	WorkingSet uint64
}

// Span is the window of a measurement.
type Span struct {
	// Timestamp is the end of the window. Window is its measured length.
	Timestamp time.Time
	Window    time.Duration
}

// NodeUsage is the usage of one node.
type NodeUsage struct {
	Name string
	// Labels are the labels of the Node object, for selectors.
	Labels map[string]string
	Usage
	Span
}

// PodUsage is the usage of the containers of one pod.
type PodUsage struct {
	Namespace, Name string
	// Labels are the labels of the Pod object, for selectors of clients and autoscalers.
	Labels map[string]string
	Span
	// Containers must contain all containers of the pod, because an autoscaler treats a pod with a missing container as a pod
	// without metrics.
	Containers []ContainerUsage
}

// ContainerUsage is the usage of one container.
type ContainerUsage struct {
	Name string
	Usage
}

// Source returns the current usage of nodes and pods. Before the first measurement it returns nil without an error. It may
// use q.Namespace and q.Name, but the host filters the result anyway. The result is shared and must not be modified. The same
// slice always has the same content.
type Source interface {
	Nodes(ctx context.Context, q extension.Query) ([]NodeUsage, error)
	Pods(ctx context.Context, q extension.Query) ([]PodUsage, error)
}
