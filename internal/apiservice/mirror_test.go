package apiservice

//lint:file-ignore SA1019 Endpoints are deprecated, and users still write them for Services without selector.

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/transport"
)

// endpointsOf returns Endpoints with one subset for the Service that the other tests use.
func endpointsOf(portName string, port int32, addresses ...string) *corev1.Endpoints {
	e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "metrics", Name: "server", ResourceVersion: "1"}}
	e.Subsets = []corev1.EndpointSubset{{Ports: []corev1.EndpointPort{{Name: portName, Port: port}}}}
	for _, a := range addresses {
		e.Subsets[0].Addresses = append(e.Subsets[0].Addresses, corev1.EndpointAddress{IP: a})
	}
	return e
}

func TestEndpointsAreUsedIfMirroringWouldApply(t *testing.T) {
	https := corev1.ServicePort{Name: "https", Port: 443}
	at := func(addresses ...string) (out []transport.Endpoint) {
		for _, a := range addresses {
			out = append(out, transport.Endpoint{Address: a})
		}
		return out
	}
	type input struct {
		service   *corev1.Service
		slices    []*discoveryv1.EndpointSlice
		endpoints *corev1.Endpoints
	}
	for name, tt := range map[string]struct {
		change    func(*input)
		clusterIP bool // endpoint routing is off
		want      []transport.Endpoint
		reason    string
	}{
		"Service without selector": {want: at("10.1.0.1:8443", "10.1.0.2:8443")},
		"headless Service without selector": {
			change:    func(in *input) { in.service.Spec.ClusterIP = corev1.ClusterIPNone },
			clusterIP: true, want: at("10.1.0.1:8443", "10.1.0.2:8443"),
		},
		"cluster IP routed by kube-proxy": {clusterIP: true, want: at("10.0.0.1:443"), reason: "EndpointsNotFound"},
		"Service with selector": {
			change: func(in *input) { in.service.Spec.Selector = map[string]string{"app": "server"} }, reason: "EndpointsNotFound",
		},
		"skip-mirror label": {
			change: func(in *input) { in.endpoints.Labels = map[string]string{discoveryv1.LabelSkipMirror: "true"} }, reason: "EndpointsNotFound",
		},
		"skip-mirror label with another value": {
			change: func(in *input) { in.endpoints.Labels = map[string]string{discoveryv1.LabelSkipMirror: "false"} },
			want:   at("10.1.0.1:8443", "10.1.0.2:8443"),
		},
		"leader election": {
			change: func(in *input) { in.endpoints.Annotations = map[string]string{leaderAnnotation: "{}"} }, reason: "EndpointsNotFound",
		},
		"Endpoints of another Service": {
			change: func(in *input) { in.endpoints.Name = "other" }, reason: "EndpointsNotFound",
		},
		"Endpoints of another namespace": {
			change: func(in *input) { in.endpoints.Namespace = "other" }, reason: "EndpointsNotFound",
		},
		"no subsets": {change: func(in *input) { in.endpoints.Subsets = nil }, reason: "EndpointsNotFound"},
		"another port name": {
			change: func(in *input) { in.endpoints.Subsets[0].Ports[0].Name = "web" }, reason: "MissingEndpoints",
		},
		"address that is not ready": {
			change: func(in *input) {
				s := &in.endpoints.Subsets[0]
				s.NotReadyAddresses, s.Addresses = s.Addresses[:1], s.Addresses[1:]
			},
			want: at("10.1.0.1:8443"),
		},
		"no address that is ready": {
			change: func(in *input) {
				s := &in.endpoints.Subsets[0]
				s.NotReadyAddresses, s.Addresses = s.Addresses, nil
			},
			reason: "MissingEndpoints",
		},
		"addresses of two families": {
			change: func(in *input) {
				in.endpoints.Subsets[0].Addresses = append(in.endpoints.Subsets[0].Addresses, corev1.EndpointAddress{IP: "2001:db8::1"})
			},
			want: at("10.1.0.1:8443", "10.1.0.2:8443"),
		},
		"mirrored slice": {
			change: func(in *input) {
				in.slices = append(in.slices, slice("a", discoveryv1.AddressTypeIPv4, "https", 8443, endpoint("10.1.0.1"), endpoint("10.1.0.2")))
			},
			want: at("10.1.0.1:8443", "10.1.0.2:8443"),
		},
		"slice takes precedence": {
			change: func(in *input) {
				in.slices = append(in.slices, slice("a", discoveryv1.AddressTypeIPv4, "https", 8443, endpoint("10.1.0.9")))
			},
			want: at("10.1.0.9:8443"),
		},
		"slice without ready endpoints takes precedence": {
			change: func(in *input) {
				in.slices = append(in.slices, slice("a", discoveryv1.AddressTypeIPv4, "https", 8443, endpoint("10.1.0.9", notReady)))
			},
			reason: "MissingEndpoints",
		},
		"slice of another port": {
			change: func(in *input) {
				in.slices = append(in.slices, slice("a", discoveryv1.AddressTypeIPv4, "web", 80, endpoint("10.1.0.1")))
			},
			want: at("10.1.0.1:8443", "10.1.0.2:8443"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := input{service: service(corev1.ServiceTypeClusterIP, "10.0.0.1", https), endpoints: endpointsOf("https", 8443, "10.1.0.2", "10.1.0.1")}
			if tt.change != nil {
				tt.change(&in)
			}
			for _, trimmed := range []bool{false, true} {
				if trimmed {
					TrimEndpoints(in.endpoints)
				}
				r := withEndpoints(t, listers(t, in.service, in.slices...), in.endpoints)
				r.endpointRouting = !tt.clusterIP
				got := r.resolve(&apiregistrationv1.APIServiceSpec{Service: &apiregistrationv1.ServiceReference{Namespace: "metrics", Name: "server"}})
				reason := ""
				if got.problem != nil {
					reason = got.problem.reason
				}
				if reason != tt.reason {
					t.Errorf("trimmed %v: reason = %q, want %q", trimmed, reason, tt.reason)
				}
				if d := cmp.Diff(tt.want, got.spec.Endpoints); d != "" {
					t.Errorf("trimmed %v: endpoints differ (-want +got):\n%s", trimmed, d)
				}
				if got.spec.LoopbackOK {
					t.Errorf("trimmed %v: loopback addresses are allowed for Endpoints, want the rules for EndpointSlices", trimmed)
				}
			}
		})
	}
}

func TestMirroredEndpointsAreLimited(t *testing.T) {
	e := endpointsOf("https", 8443)
	for i := range 2 * maxMirrored {
		e.Subsets[0].Addresses = append(e.Subsets[0].Addresses, corev1.EndpointAddress{
			IP: fmt.Sprintf("10.1.%d.%d", i/250, i%250), Hostname: "h", NodeName: new("n"), TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "p"},
		})
	}
	TrimEndpoints(e)
	if got := e.Subsets[0].Addresses; len(got) != maxMirrored || got[0] != (corev1.EndpointAddress{IP: "10.1.0.0"}) {
		t.Errorf("TrimEndpoints left %d addresses, the first %+v, want %d with the IP only", len(got), got[0], maxMirrored)
	}
	if got := len(MirrorEndpoints(service(corev1.ServiceTypeClusterIP, "10.0.0.1"), e)[0].Endpoints); got != maxMirrored {
		t.Errorf("MirrorEndpoints returned %d endpoints, want %d", got, maxMirrored)
	}
}

// addServiceWithEndpoints adds an APIService whose Service has no selector, and hand-written Endpoints.
func (h *env) addServiceWithEndpoints(port int32, address string) {
	h.t.Helper()
	s := service(corev1.ServiceTypeClusterIP, "10.0.0.1", corev1.ServicePort{Name: "https", Port: 443})
	s.Namespace = "test"
	e := endpointsOf("https", port, address)
	e.Namespace = "test"
	h.add(s)
	h.add(h.remote("example.com", "v1", "server", 443))
	if _, err := h.core.CoreV1().Endpoints("test").Create(h.t.Context(), e, metav1.CreateOptions{}); err != nil {
		h.t.Fatal(err)
	}
}

// resolved returns the endpoints that the caches resolve to at this moment.
func (h *env) resolved() []transport.Endpoint {
	return h.resolver.resolve(&h.get("v1.example.com").Spec).spec.Endpoints
}

func TestRouteFollowsManualEndpointChanges(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	b := h.serve("server")
	h.addServiceWithEndpoints(b.port(), "127.0.0.1")
	h.is("v1.example.com", "True", "Passed")

	mirrored := slice("server-a", discoveryv1.AddressTypeIPv4, "https", b.port(), endpoint("127.0.0.1"))
	mirrored.Namespace = "test"
	if _, err := h.core.DiscoveryV1().EndpointSlices("test").Create(t.Context(), mirrored, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cached := func(informer cache.SharedIndexInformer, key string) bool {
		_, found, err := informer.GetIndexer().GetByKey(key)
		return found && err == nil
	}
	eventually(t, "the slice is in the cache", func() bool { return cached(h.cfg.EndpointSlices.Informer(), "test/server-a") })
	want := []transport.Endpoint{{Address: fmt.Sprintf("127.0.0.1:%d", b.port())}}
	if got := h.resolved(); !slices.Equal(got, want) {
		t.Errorf("endpoints with a mirrored slice = %v, want %v", got, want)
	}
	if err := h.core.CoreV1().Endpoints("test").Delete(t.Context(), "server", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Endpoints are not in the cache", func() bool { return !cached(h.cfg.Endpoints.Informer(), "test/server") })
	if got := h.resolved(); !slices.Equal(got, want) {
		t.Errorf("endpoints with a slice only = %v, want %v", got, want)
	}
	if err := h.core.DiscoveryV1().EndpointSlices("test").Delete(t.Context(), mirrored.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	h.is("v1.example.com", "False", "EndpointsNotFound")
}

func TestDeletedEndpointsAreNotUsed(t *testing.T) {
	h := open(t, nil)
	b := h.serve("server")
	h.addServiceWithEndpoints(b.port(), "127.0.0.1")
	h.is("v1.example.com", "True", "Passed")
	if err := h.core.CoreV1().Endpoints("test").Delete(t.Context(), "server", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	h.is("v1.example.com", "False", "EndpointsNotFound")
}

// Users who can edit a namespace can write Endpoints, so their addresses are not trusted (CVE-2021-25740).
func TestForbiddenAddressInEndpointsIsReported(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"169.254.169.254", "127.0.0.1", "::1"} {
		t.Run(address, func(t *testing.T) {
			h := open(t, nil, func(_ *env, _ *Config, o *transport.Options) { o.AllowLoopback = false })
			b := h.serve("server")
			h.addServiceWithEndpoints(b.port(), address)
			h.is("v1.example.com", "False", "ForbiddenAddress")
			if got := b.asked.Load(); got != 0 {
				t.Errorf("requests to %s = %d, want 0", address, got)
			}
		})
	}
}
