package kubelet

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"portico.dev/internal/pki"
	"portico.dev/internal/proxy"
)

// bench is a Connector with a kubelet implemented by a handler, and the objects with its address.
type bench struct {
	*Connector
	objects
	node   *corev1.Node
	pod    *corev1.Pod
	server *httptest.Server
}

// objects implements registry.Objects.
type objects struct {
	nodes    map[string]*corev1.Node
	pods     map[string]*corev1.Pod
	services map[string]*corev1.Service
	slices   []*discoveryv1.EndpointSlice
}

func (o objects) Node(_ context.Context, name string) (*corev1.Node, error) {
	return find(o.nodes, "nodes", name)
}

func (o objects) Pod(_ context.Context, name string) (*corev1.Pod, error) {
	return find(o.pods, "pods", name)
}

func (o objects) Service(_ context.Context, name string) (*corev1.Service, error) {
	return find(o.services, "services", name)
}

func (o objects) EndpointSlices(context.Context, string) ([]*discoveryv1.EndpointSlice, error) {
	return o.slices, nil
}

func find[T any](in map[string]*T, resource, name string) (*T, error) {
	if found, ok := in[name]; ok {
		return found, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource(resource), name)
}

func newBench(t *testing.T, h http.HandlerFunc) *bench {
	t.Helper()
	ca, err := pki.NewAuthority("kubelets")
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Issue(pki.Leaf{CommonName: "system:node:n1", Server: true, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{server: httptest.NewUnstartedServer(h)}
	b.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	b.server.Listener = tls.NewListener(b.server.Listener, pki.ServerConfig(pair))
	b.server.Start()
	t.Cleanup(b.server.Close)
	bundle, err := pki.StaticBundle(ca.PEM())
	if err != nil {
		t.Fatal(err)
	}
	p := proxy.New(proxy.Config{})
	b.Connector = New(Config{
		Proxy: func() *proxy.Proxy { return p }, PreferredAddressTypes: []corev1.NodeAddressType{corev1.NodeInternalIP}, Authority: bundle, Timeout: 5 * time.Second,
	})
	t.Cleanup(b.Connector.Close)
	b.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n1.invalid"}, {Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(b.server.Listener.Addr().(*net.TCPAddr).Port)}},
	}}
	b.pod = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c"}}},
	}
	b.objects = objects{nodes: map[string]*corev1.Node{"n1": b.node}, pods: map[string]*corev1.Pod{"a": b.pod}, services: map[string]*corev1.Service{}}
	return b
}

// contextOf returns the context of a request as the handler chain creates it.
func contextOf(namespace, resource, subresource string) context.Context {
	ctx := apirequest.WithNamespace(context.Background(), namespace)
	ctx = apirequest.WithUser(ctx, &user.DefaultInfo{Name: "jane"})
	return apirequest.WithRequestInfo(ctx, &apirequest.RequestInfo{
		IsResourceRequest: true, Verb: "get", APIVersion: "v1", Namespace: namespace, Resource: resource, Subresource: subresource, Name: "a",
	})
}

func (b *bench) log(o *corev1.PodLogOptions) (string, error) {
	ctx := contextOf("ns", "pods", "log")
	found, err := b.Log(ctx, b.objects, "a", o)
	if err != nil {
		return "", err
	}
	body, _, _, err := found.(rest.ResourceStreamer).InputStream(ctx, "v1", "")
	if err != nil || body == nil {
		return "", err
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	return string(text), err
}

func TestLogOptionsAreSentToKubelet(t *testing.T) {
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s", r.Method, r.URL.RequestURI())
	})
	seconds, lines, limit := int64(5), int64(7), int64(9)
	for wanted, o := range map[string]*corev1.PodLogOptions{
		"GET /containerLogs/ns/a/c": {},
		"GET /containerLogs/ns/a/c?follow=true&limitBytes=9&previous=true&sinceSeconds=5&tailLines=7&timestamps=true": {
			Container: "c", Follow: true, Previous: true, SinceSeconds: &seconds, TailLines: &lines, LimitBytes: &limit, Timestamps: true,
		},
		"GET /containerLogs/ns/a/c?sinceTime=2026-11-28T01%3A02%3A03Z": {SinceTime: &metav1.Time{Time: time.Date(2026, 11, 28, 1, 2, 3, 0, time.UTC)}},
	} {
		if got, err := b.log(o); err != nil || got != wanted {
			t.Errorf("log = %q, error %v, want %q", got, err, wanted)
		}
	}
}

func TestInvalidLogRequestsAreRejected(t *testing.T) {
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "container has no log", http.StatusBadRequest)
	})
	zero, minus, one := int64(0), int64(-1), int64(1)
	now, stream := metav1.Now(), "Stdout"
	for wanted, o := range map[string]*corev1.PodLogOptions{
		"container has no log":                                   {},
		"container x is not valid for pod a":                     {Container: "x"},
		"tailLines: Invalid value: -1: must be greater than or":  {TailLines: &minus},
		"limitBytes: Invalid value: 0: must be greater than 0":   {LimitBytes: &zero},
		"sinceSeconds: Invalid value: 0: must be greater than 0": {SinceSeconds: &zero},
		"at most one of `sinceTime` or `sinceSeconds` may be":    {SinceSeconds: &one, SinceTime: &now},
		"stream: Forbidden: may not be specified":                {Stream: &stream},
	} {
		if _, err := b.log(o); err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("log error = %v, want %q", err, wanted)
		}
	}
	b.pod.Spec.Containers = append(b.pod.Spec.Containers, corev1.Container{Name: "d"})
	if _, err := b.log(&corev1.PodLogOptions{}); err == nil || err.Error() != "a container name must be specified for pod a, choose one of: [c d]" {
		t.Errorf("log without a container name: error = %v, want a list of the containers", err)
	}
}

// The error for an unreachable kubelet contains its name, the failed step and the time of its last response.
func TestErrorNamesUnreachableKubelet(t *testing.T) {
	b := newBench(t, func(http.ResponseWriter, *http.Request) {})
	address := b.server.Listener.Addr().String()
	where := "the server is currently unable to handle the request: the kubelet of node n1 at " + address + " (InternalIP): "
	refused := func(wanted string) {
		t.Helper()
		_, err := b.log(&corev1.PodLogOptions{})
		if !apierrors.IsServiceUnavailable(err) || !strings.HasPrefix(err.Error(), where+wanted) {
			t.Errorf("log error = %v, want %q", err, where+wanted)
		}
	}
	b.config.Authority, _ = pki.StaticBundle(must(pki.NewAuthority("others")).PEM())
	refused("its certificate is not signed by the authority in --kubelet-certificate-authority; it has not answered since 20")
	if _, err := b.log(&corev1.PodLogOptions{InsecureSkipTLSVerifyBackend: true}); err != nil {
		t.Errorf("log without verification: error = %v, want no error", err)
	}
	b.server.Close()
	refused("it refused the connection; it has not answered since 20")

	b.node.Status.DaemonEndpoints.KubeletEndpoint.Port = 0
	b.node.Status.Addresses = nil
	if _, err := b.log(&corev1.PodLogOptions{}); err == nil || !strings.Contains(err.Error(), "node n1 has no kubelet that could be asked: no preferred addresses found") {
		t.Errorf("log without an address: error = %v, want \"no preferred addresses found\"", err)
	}
	delete(b.nodes, "n1")
	if _, err := b.log(&corev1.PodLogOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("log without a Node: error = %v, want NotFound", err)
	}
	b.pod.Spec.NodeName = ""
	if text, err := b.log(&corev1.PodLogOptions{}); err != nil || text != "" {
		t.Errorf("log of an unscheduled Pod = %q, error %v, want an empty log and no error", text, err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// serve handles a request of a client with a handler.
func serve(h http.Handler, ctx context.Context, method, target string, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil).WithContext(ctx)
	for name, values := range header {
		r.Header[name] = values
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// proxyToKubelet is ProxyNode for a kubelet on loopback, which ProxyNode itself refuses.
func (b *bench) proxyToKubelet(t *testing.T) http.Handler {
	t.Helper()
	at, err := b.locate(t.Context(), b.objects, "n1")
	if err != nil {
		t.Fatal(err)
	}
	return b.proxied(func() (*proxy.Target, func(), error) { return b.target(at, false, true) })
}

// Requests reach kubelets and Pods without headers that could impersonate other clients, and with an unchanged path.
func TestK1KubeletRequestsHaveNoIdentityHeaders(t *testing.T) {
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Authorization", "Cookie", "X-Remote-User", "X-Remote-Group", "X_Remote_User", "Impersonate-User", "Via", "Proxy-Authorization"} {
			if v := r.Header.Values(name); len(v) > 0 {
				t.Errorf("header %s at the kubelet = %q, want none", name, v)
			}
		}
		w.Header().Set("Set-Cookie", "a=b")
		fmt.Fprintf(w, "%s %s %s %s", r.Method, r.URL.RequestURI(), r.Header.Get("X-Other"), r.Header.Get("X-Forwarded-Uri"))
	})
	h, ctx := b.proxyToKubelet(t), contextOf("", "nodes", "proxy")
	header := http.Header{
		"Authorization": {"Bearer x"}, "Cookie": {"a=b"}, "X-Remote-User": {"root"}, "X-Remote-Group": {"system:masters"}, "X_Remote_User": {"root"},
		"Impersonate-User": {"root"}, "Proxy-Authorization": {"x"}, "X-Other": {"passes"},
	}
	w := serve(h, ctx, http.MethodPut, "/api/v1/nodes/a/proxy/run/%C3%A4/?x=%2F&y", header)
	if wanted := "PUT /run/%C3%A4/?x=%2F&y passes /api/v1/nodes/a/proxy/run/%C3%A4/"; w.Body.String() != wanted || w.Header().Get("Set-Cookie") != "" {
		t.Errorf("response = %q, header %v, want %q", w.Body, w.Header(), wanted)
	}
	if w = serve(h, ctx, http.MethodGet, "/api/v1/nodes/a/proxy?x=y", nil); w.Code != http.StatusMovedPermanently || w.Header().Get("Location") != "/api/v1/nodes/a/proxy/?x=y" {
		t.Errorf("GET without a final slash = %d to %q, want 301 to /api/v1/nodes/a/proxy/?x=y", w.Code, w.Header().Get("Location"))
	}
	if w = serve(h, ctx, http.MethodPost, "/api/v1/nodes/a/proxy", nil); !strings.HasPrefix(w.Body.String(), "POST / ") {
		t.Errorf("POST without a final slash = %d %q, want it to arrive as POST /", w.Code, w.Body)
	}
}

// Generated clients escape the slashes of a proxied path. The path after the subresource is sent unchanged, even if it begins with an
// empty segment, and never as the URL of another host.
func TestA17ProxiedPathReachesKubeletUnchanged(t *testing.T) {
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			switching(w, r)
			return
		}
		fmt.Fprintf(w, "%s host=%t", r.RequestURI, r.URL.Host != "")
	})
	h, ctx := b.proxyToKubelet(t), contextOf("", "nodes", "proxy")
	for tail, want := range map[string]string{
		"/stats%2Fsummary": "/stats%2Fsummary", "/stats%2fsummary?x=%2F": "/stats%2fsummary?x=%2F", "/a%252Fb": "/a%252Fb", "/a%2Fb|c": "/a%2Fb|c",
		"/a//b//": "/a//b//", "//evil.test/a%2Fb": "//evil.test/a%2Fb", "///a?b": "///a?b", "//a%2Fb|c": "//a%2Fb%7Cc",
	} {
		if w := serve(h, ctx, http.MethodGet, "/api/v1/nodes/a/proxy"+tail, nil); w.Body.String() != want+" host=false" {
			t.Errorf("path of GET .../proxy%s at the kubelet = %q, want %q", tail, w.Body, want)
		}
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, r.WithContext(ctx)) }))
	defer front.Close()
	conn, err := net.Dial("tcp", front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprint(conn, "GET /api/v1/nodes/a/proxy//x%2Fy HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := resp.Header.Get("X-Asked"), "GET //x%2Fy"; got != want {
		t.Errorf("upgrade at the kubelet = %q (%s), want %q", got, resp.Status, want)
	}
}

// Redirects stay below the proxied path, or are refused.
func TestK2KubeletRedirectsStayBelowProxiedPath(t *testing.T) {
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", strings.ReplaceAll(r.URL.Query().Get("to"), "SELF", r.Host))
		w.WriteHeader(http.StatusFound)
	})
	h, ctx := b.proxyToKubelet(t), contextOf("", "nodes", "proxy")
	for to, wanted := range map[string]string{
		"/x?y=z":                  "/api/v1/nodes/a/proxy/x?y=z",
		"x":                       "/api/v1/nodes/a/proxy/dir/x",
		"../../../../x":           "/api/v1/nodes/a/proxy/x",
		"https://SELF/x":          "/api/v1/nodes/a/proxy/x",
		"https://evil.test/x":     "",
		"//evil.test/x":           "",
		`/\evil.test/x`:           "",
		"javascript:alert(1)":     "",
		"/api/v1/nodes/a/proxy/x": "/api/v1/nodes/a/proxy/x",
	} {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/nodes/a/proxy/dir/page", nil).WithContext(ctx)
		r.URL.RawQuery = "to=" + strings.NewReplacer("/", "%2F", ":", "%3A", "?", "%3F", "=", "%3D", `\`, "%5C").Replace(to)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if code := w.Code; wanted == "" && code != http.StatusBadGateway || wanted != "" && code != http.StatusFound || w.Header().Get("Location") != wanted {
			t.Errorf("redirect to %s = %d %q, want %q", to, code, w.Header().Get("Location"), wanted)
		}
	}
	w := serve(h, ctx, http.MethodGet, "/api/v1/nodes/a/proxy//page?to=x", nil)
	if got, want := w.Header().Get("Location"), "/api/v1/nodes/a/proxy/x"; got != want {
		t.Errorf("relative redirect from //page = %q, want %q", got, want)
	}
}

// No proxied request reaches loopback, link-local addresses or metadata services, for all Nodes, Pods and EndpointSlices.
func TestK3ForbiddenAddressesAreNotProxied(t *testing.T) {
	b := newBench(t, func(w http.ResponseWriter, _ *http.Request) { t.Error("kubelet received a request, want none") })
	ctx := contextOf("ns", "pods", "proxy")
	for _, ip := range []string{"127.0.0.1", "169.254.169.254", "::1", "fe80::1", "0.0.0.0", "224.0.0.1", ""} {
		b.node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}
		b.pod.Status.PodIPs = []corev1.PodIP{{IP: ip}}
		if _, err := b.ProxyNode(ctx, b.objects, "n1"); !apierrors.IsBadRequest(err) {
			t.Errorf("ProxyNode for a Node at %q: error = %v, want BadRequest", ip, err)
		}
		if _, err := b.ProxyPod(ctx, b.objects, "a:80"); !apierrors.IsBadRequest(err) || err.Error() != "address not allowed" {
			t.Errorf("ProxyPod for a Pod at %q: error = %v, want BadRequest \"address not allowed\"", ip, err)
		}
	}
	// kube-apiserver's check allows this address. The dial guard refuses it.
	b.pod.Status.PodIPs = []corev1.PodIP{{IP: "100.100.100.200"}}
	h, err := b.ProxyPod(ctx, b.objects, "a:80")
	if err != nil {
		t.Fatal(err)
	}
	if w := serve(h, ctx, http.MethodGet, "/api/v1/namespaces/ns/pods/a:80/proxy/", nil); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "must not be dialled") {
		t.Errorf("request to a metadata service = %d %s, want 503 with \"must not be dialled\"", w.Code, w.Body)
	}
}

// An endpoint of a Service counts only if it is a Pod of the namespace with the Pod's address.
func TestK4EndpointsWithoutMatchingPodAreRejected(t *testing.T) {
	b := newBench(t, func(http.ResponseWriter, *http.Request) {})
	b.pod.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.9"}}
	b.services["s"] = &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}
	ctx, name, port := contextOf("ns", "services", "proxy"), "http", int32(8080)
	ask := func(e discoveryv1.Endpoint) error {
		b.objects.slices = []*discoveryv1.EndpointSlice{{
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}}, Endpoints: []discoveryv1.Endpoint{e},
		}}
		_, err := b.ProxyService(ctx, b.objects, "s:80")
		return err
	}
	pod := func(namespace, name string) *corev1.ObjectReference {
		return &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: name}
	}
	for situation, e := range map[string]discoveryv1.Endpoint{
		"no reference":          {Addresses: []string{"10.0.0.9"}},
		"another namespace":     {Addresses: []string{"10.0.0.9"}, TargetRef: pod("other", "a")},
		"no such pod":           {Addresses: []string{"10.0.0.9"}, TargetRef: pod("ns", "b")},
		"not the pod's address": {Addresses: []string{"10.0.0.1"}, TargetRef: pod("ns", "a")},
	} {
		if err := ask(e); err == nil || !strings.Contains(err.Error(), `no endpoints available for service "s"`) {
			t.Errorf("%s: error = %v, want no endpoints available", situation, err)
		}
	}
	if err := ask(discoveryv1.Endpoint{Addresses: []string{"10.0.0.9"}, TargetRef: pod("ns", "a")}); err != nil {
		t.Error(err)
	}
	if _, err := b.ProxyService(ctx, b.objects, "s:81"); err == nil || err.Error() != `no service port 81 found for service "s"` {
		t.Errorf("ProxyService for an unknown port: error = %v, want no service port 81", err)
	}
}

// Only WebSocket and SPDY upgrades are accepted. A request without an upgrade does not reach a console.
func TestK5OnlyWebSocketAndSPDYUpgradesReachKubelet(t *testing.T) {
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) { t.Errorf("kubelet received %s, want no request", r.URL) })
	ctx := contextOf("ns", "pods", "exec")
	h, err := b.Exec(ctx, b.objects, "a", &corev1.PodExecOptions{Command: []string{"id"}, Stdout: true})
	if err != nil {
		t.Fatal(err)
	}
	for wanted, header := range map[string]http.Header{
		"Upgrade request required":                nil,
		"only upgrades to websocket and SPDY/3.1": {"Connection": {"Upgrade"}, "Upgrade": {"h2c"}},
		"names exactly one protocol in Upgrade":   {"Connection": {"Upgrade"}, "Upgrade": {"websocket", "SPDY/3.1"}},
	} {
		if w := serve(h, ctx, http.MethodPost, "/api/v1/namespaces/ns/pods/a/exec?command=id", header); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), wanted) {
			t.Errorf("response = %d %s, want %q", w.Code, w.Body, wanted)
		}
	}
}

// The path of a console request contains only object names and the parsed parameters.
func TestConsolePathContainsOnlyParsedParameters(t *testing.T) {
	asked := make(chan string, 1)
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.RequestURI() + " " + r.Header.Get("Upgrade")
		http.Error(w, "not today", http.StatusForbidden)
	})
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}}
	for _, c := range []struct {
		subresource, wanted string
		open                func(ctx context.Context) (http.Handler, error)
	}{
		{"exec", "POST /exec/ns/a/c?command=sh&command=-c&input=1&output=1&tty=1 SPDY/3.1", func(ctx context.Context) (http.Handler, error) {
			return b.Exec(ctx, b.objects, "a", &corev1.PodExecOptions{Command: []string{"sh", "-c"}, Stdin: true, Stdout: true, TTY: true})
		}},
		{"attach", "POST /attach/ns/a/c?error=1 SPDY/3.1", func(ctx context.Context) (http.Handler, error) {
			return b.Attach(ctx, b.objects, "a", &corev1.PodAttachOptions{Stderr: true})
		}},
		{"portforward", "POST /portForward/ns/a?port=80%2C81 SPDY/3.1", func(ctx context.Context) (http.Handler, error) {
			return b.PortForward(ctx, b.objects, "a", &corev1.PodPortForwardOptions{Ports: []int32{80, 81}})
		}},
	} {
		ctx := contextOf("ns", "pods", c.subresource)
		h, err := c.open(ctx)
		if err != nil {
			t.Errorf("%s: open failed: %v, want no error", c.subresource, err)
			continue
		}
		w := serve(h, ctx, http.MethodPost, "/api/v1/namespaces/ns/pods/a/"+c.subresource, upgrade)
		if got := <-asked; got != c.wanted || w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "not today") {
			t.Errorf("%s: request at the kubelet = %q, want %q; response %d %s", c.subresource, got, c.wanted, w.Code, w.Body)
		}
	}
	b.pod.Spec.NodeName = ""
	if _, err := b.Exec(t.Context(), b.objects, "a", &corev1.PodExecOptions{}); err == nil || err.Error() != "pod a does not have a host assigned" {
		t.Errorf("Exec in an unscheduled Pod: error = %v, want \"pod a does not have a host assigned\"", err)
	}
}

// Unused servers are forgotten. Servers in use are kept.
func TestUnusedServersAreRemoved(t *testing.T) {
	b := newBench(t, func(http.ResponseWriter, *http.Request) {})
	_, release, err := b.acquire(key{name: podKey, address: "10.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := b.acquire(key{name: podKey, address: "10.0.0.1:2"})
	if err != nil {
		t.Fatal(err)
	}
	other()
	later := time.Now().Add(2 * idleServer)
	b.mu.Lock()
	b.sweep(later)
	n := len(b.servers)
	b.mu.Unlock()
	release()
	if n != 1 {
		t.Errorf("%d servers are known, want 1, the one in use", n)
	}
}

var _ runtime.Object = (*logStream)(nil)
