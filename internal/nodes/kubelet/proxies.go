package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	endpoints "k8s.io/apiserver/pkg/util/proxy"

	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/filters"
	"portico.dev/internal/proxy"
	"portico.dev/internal/request"
	"portico.dev/internal/respond"
)

var errNotAllowed = errors.New("address not allowed")

// ProxyNode implements registry.Connector. The kubelet's own port is reached with both certificates, any other port
// of the node without them.
func (c *Connector) ProxyNode(ctx context.Context, from registry.Objects, id string) (http.Handler, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(id)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid node request %q", id))
	}
	at, err := c.locate(ctx, from, name)
	if err != nil {
		return nil, err
	}
	if err := checkHost(ctx, at.host); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if port != "" && port != at.port {
		return c.proxyTo(scheme, net.JoinHostPort(at.host, port), "port "+port+" of node "+name, *nodeDetails(name)), nil
	}
	return c.proxied(func() (*proxy.Target, func(), error) { return c.target(at, false, false) }), nil
}

// checkHost refuses the addresses that kube-apiserver refuses. The dialled address also passes the dial guard.
func checkHost(ctx context.Context, host string) error {
	found, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return errors.New("no addresses for hostname")
	}
	for _, a := range found {
		if !a.IP.IsGlobalUnicast() {
			return errNotAllowed
		}
	}
	return nil
}

// ProxyPod implements registry.Connector.
func (c *Connector) ProxyPod(ctx context.Context, from registry.Objects, id string) (http.Handler, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(id)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid pod request %q", id))
	}
	pod, err := from.Pod(ctx, name)
	if err != nil {
		return nil, err
	}
	if port == "" {
		port = firstPort(pod)
	}
	ip := ""
	if len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	if parsed := net.ParseIP(ip); parsed == nil || !parsed.IsGlobalUnicast() {
		return nil, apierrors.NewBadRequest(errNotAllowed.Error())
	}
	if port == "" {
		port = defaultPortOf(scheme)
	}
	address := net.JoinHostPort(ip, port)
	return c.proxyTo(scheme, address, fmt.Sprintf("pod %s/%s at %s", pod.Namespace, name, address), metav1.StatusDetails{Kind: "pods", Name: name}), nil
}

func firstPort(pod *corev1.Pod) string {
	for i := range pod.Spec.Containers {
		if ports := pod.Spec.Containers[i].Ports; len(ports) > 0 {
			return strconv.Itoa(int(ports[0].ContainerPort))
		}
	}
	return ""
}

func defaultPortOf(scheme string) string {
	if scheme == "https" {
		return "443"
	}
	return "80"
}

// ProxyService implements registry.Connector. It selects one of the ready endpoints that are pods.
func (c *Connector) ProxyService(ctx context.Context, from registry.Objects, id string) (http.Handler, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(id)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid service request %q", id))
	}
	if number, err := strconv.ParseInt(port, 10, 64); err == nil {
		service, err := from.Service(ctx, name)
		if err != nil {
			return nil, err
		}
		if port, ok = portName(service, number); !ok {
			return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", number, name))
		}
	}
	slices, err := from.EndpointSlices(ctx, name)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if len(slices) == 0 {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", name))
	}
	family := corev1.IPv4Protocol
	address, err := endpoints.RandomEndpoint(name, slices, port, family, func(e *discoveryv1.Endpoint) bool { return isPod(ctx, from, e) })
	if err != nil {
		return nil, err
	}
	subject := fmt.Sprintf("an endpoint of service %s/%s at %s", apirequest.NamespaceValue(ctx), name, address)
	return c.proxyTo(scheme, address, subject, metav1.StatusDetails{Kind: "services", Name: name}), nil
}

func portName(s *corev1.Service, number int64) (string, bool) {
	for _, p := range s.Spec.Ports {
		if int64(p.Port) == number {
			return p.Name, true
		}
	}
	return "", false
}

// isPod reports whether an endpoint really is a pod of the namespace. Users who may write EndpointSlices must not be
// able to reach arbitrary addresses from here.
func isPod(ctx context.Context, from registry.Objects, e *discoveryv1.Endpoint) bool {
	if e.TargetRef == nil || e.TargetRef.Namespace != apirequest.NamespaceValue(ctx) || len(e.Addresses) == 0 {
		return false
	}
	pod, err := from.Pod(ctx, e.TargetRef.Name)
	if err != nil {
		return false
	}
	// Only the first address is used.
	return slices.Contains(pod.Status.PodIPs, corev1.PodIP{IP: e.Addresses[0]})
}

// proxyTo returns a proxy to a pod, or to a port of a node, without TLS or with TLS without verification.
func (c *Connector) proxyTo(scheme, address, subject string, details metav1.StatusDetails) http.Handler {
	return c.proxied(func() (*proxy.Target, func(), error) {
		t := &proxy.Target{Host: address, Name: subject, Details: details, Explain: explainPod}
		if scheme != "https" {
			t.Server = c.plain.To(address)
			return t, func() {}, nil
		}
		s, release, err := c.acquire(key{name: podKey, address: address})
		if err != nil {
			return nil, nil, err
		}
		t.Server = s
		return t, release, nil
	})
}

func explainPod(cause, text string) string {
	if cause == "ForbiddenAddress" {
		return "its address must not be dialled: it is a loopback, link-local or multicast address, a cloud's metadata service, or this server itself"
	}
	return text
}

// proxied maps paths below .../proxy to paths below / of a target.
func (c *Connector) proxied(find func() (*proxy.Target, func(), error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		prefix, rest, ok := splitProxyPath(r)
		if !ok {
			respond.Error(w, r, apierrors.NewBadRequest("the path is none of a proxy subresource"))
			return
		}
		if rest == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Upgrade") == "" {
			location := prefix + "/"
			if r.URL.RawQuery != "" {
				location += "?" + r.URL.RawQuery
			}
			w.Header().Set("Location", location)
			w.WriteHeader(http.StatusMovedPermanently)
			return
		}
		t, release, err := find()
		if err != nil {
			respond.Error(w, r, err)
			return
		}
		defer release()
		rest = cmp.Or(rest, "/")
		t.Prefix, t.Path, t.RawQuery = prefix, rest, r.URL.RawQuery
		c.config.Proxy().ServeTarget(w, filters.RequestOf(r), t)
	})
}

// splitProxyPath splits the raw path of a request after the subresource.
func splitProxyPath(r *http.Request) (prefix, rest string, ok bool) {
	raw := request.RawPath(r.URL)
	segments := 5 // /api/v1/nodes/NAME/proxy
	if info, known := apirequest.RequestInfoFrom(r.Context()); known && info.Namespace != "" {
		segments = 7
	}
	end := 0
	for range segments {
		next := strings.IndexByte(raw[end:], '/')
		if next < 0 {
			return "", "", false
		}
		end += next + 1
		if after := strings.IndexByte(raw[end:], '/'); after >= 0 {
			end += after
		} else {
			end = len(raw)
		}
	}
	prefix, rest = raw[:end], raw[end:]
	return prefix, rest, strings.HasSuffix(prefix, "/proxy")
}
