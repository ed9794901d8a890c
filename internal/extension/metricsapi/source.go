package metricsapi

import (
	"context"
	"time"

	"portico.dev/internal/extension"
)

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
