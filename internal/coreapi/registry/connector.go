package registry

import (
	"context"
	"net/http"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Connector sends requests to kubelets, to pods and to the pods behind Services. Each call gets the context of the request,
// with its namespace. Errors are API status errors.
type Connector interface {
	// Log returns an object that streams the log of a container (rest.ResourceStreamer).
	Log(ctx context.Context, from Objects, pod string, o *corev1.PodLogOptions) (runtime.Object, error)
	// Exec, Attach and PortForward return the handler of a request that is upgraded to a connection.
	Exec(ctx context.Context, from Objects, pod string, o *corev1.PodExecOptions) (http.Handler, error)
	Attach(ctx context.Context, from Objects, pod string, o *corev1.PodAttachOptions) (http.Handler, error)
	PortForward(ctx context.Context, from Objects, pod string, o *corev1.PodPortForwardOptions) (http.Handler, error)
	// ProxyNode, ProxyPod and ProxyService return the handler of any request. id is NAME, NAME:PORT or SCHEME:NAME:PORT.
	ProxyNode(ctx context.Context, from Objects, id string) (http.Handler, error)
	ProxyPod(ctx context.Context, from Objects, id string) (http.Handler, error)
	ProxyService(ctx context.Context, from Objects, id string) (http.Handler, error)
}

// Objects contains the objects that a Connector reads. Pods, Services and slices are in the namespace of the context.
type Objects interface {
	Node(ctx context.Context, name string) (*corev1.Node, error)
	Pod(ctx context.Context, name string) (*corev1.Pod, error)
	Service(ctx context.Context, name string) (*corev1.Service, error)
	EndpointSlices(ctx context.Context, service string) ([]*discoveryv1.EndpointSlice, error)
}

type breakKey struct{}

// WithBreak returns a context for BreakOff, and the flag that BreakOff sets. If the flag is set after k8s.io/apiserver has
// returned, the handler must abort the response.
func WithBreak(ctx context.Context) (context.Context, *atomic.Bool) {
	broken := &atomic.Bool{}
	return context.WithValue(ctx, breakKey{}, broken), broken
}

// BreakOff reports that a stream, which k8s.io/apiserver copies to the response, ended prematurely. Without it,
// k8s.io/apiserver would end the response as if it were complete.
func BreakOff(ctx context.Context) {
	if broken, ok := ctx.Value(breakKey{}).(*atomic.Bool); ok {
		broken.Store(true)
	}
}
