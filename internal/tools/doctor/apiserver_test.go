package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/pki"
)

// kubeAPIServer serves the objects of a test cluster and proxies its group-version as a kube-apiserver does: TLS with the name
// of the Service and the caBundle, the front proxy's certificate, 503 in plain text if the server is not reachable.
type kubeAPIServer struct {
	w     *testCluster
	proxy *http.Client
}

// proxyPatience is the API server's timeout for a discovery document.
const proxyPatience = 5 * time.Second

func (w *testCluster) serveAPI() {
	w.t.Helper()
	k := &kubeAPIServer{w: w}
	config, err := pki.ClientConfig(pki.ClientOptions{
		ServerName: "orders.shop.svc", Roots: w.roots(), Insecure: w.apiService.Spec.InsecureSkipTLSVerify, Certificate: w.presented(),
	})
	if err == nil {
		transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
		w.t.Cleanup(transport.CloseIdleConnections)
		k.proxy = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	own := newAuthority(w.t, "cluster-ca")
	leaf := own.issueFor(net.IPv4(127, 0, 0, 1))
	address := listen(w.t, pki.ServerConfig(leaf), k)
	w.cfg.Client = &rest.Config{Host: "https://" + address, TLSClientConfig: rest.TLSClientConfig{CAData: own.pem}}
}

func (w *testCluster) roots() []byte {
	if len(w.apiService.Spec.CABundle) > 0 {
		return w.apiService.Spec.CABundle
	}
	return nil
}

func (k *kubeAPIServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	switch {
	case path == "/version":
		answering(http.StatusOK, map[string]string{"gitVersion": map[bool]string{false: "v1.37.2", true: "v1.37.2+portico-test"}[k.w.portico]})(w, r)
	case path == reviewPath:
		answering(http.StatusCreated, authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: !k.w.denied}})(w, r)
	case path == subjectReviewPath:
		answering(http.StatusCreated, authorizationv1.SubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: k.w.mayRead}})(w, r)
	case path == "/apis":
		k.aggregated(w, r)
	case path == "/openapi/v3":
		answering(http.StatusOK, map[string]any{"paths": map[string]any{
			discoveryPath[1:]: map[string]string{"serverRelativeURL": "/openapi/v3" + discoveryPath + "?hash=1"},
		}})(w, r)
	case strings.HasPrefix(path, discoveryPath), strings.HasPrefix(path, "/openapi/v3/"):
		k.forward(w, r)
	case path == apiRoutesPath+"/"+name && k.w.route != nil:
		answering(http.StatusOK, k.w.route)(w, r)
	default:
		k.object(w, r)
	}
}

// aggregated writes Current and the backend's resources if the backend returns its document.
func (k *kubeAPIServer) aggregated(w http.ResponseWriter, r *http.Request) {
	v := apidiscoveryv2.APIVersionDiscovery{Version: served, Freshness: apidiscoveryv2.DiscoveryFreshnessStale}
	if resp, err := k.ask(r, discoveryPath); err == nil {
		defer func() { _ = resp.Body.Close() }()
		var list metav1.APIResourceList
		if resp.StatusCode == http.StatusOK && json.NewDecoder(resp.Body).Decode(&list) == nil {
			v.Freshness = apidiscoveryv2.DiscoveryFreshnessCurrent
			for _, resource := range list.APIResources {
				v.Resources = append(v.Resources, apidiscoveryv2.APIResourceDiscovery{Resource: resource.Name})
			}
		}
	}
	answering(http.StatusOK, apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
		Items:    []apidiscoveryv2.APIGroupDiscovery{{ObjectMeta: metav1.ObjectMeta{Name: group}, Versions: []apidiscoveryv2.APIVersionDiscovery{v}}},
	})(w, r)
}

func (k *kubeAPIServer) forward(w http.ResponseWriter, r *http.Request) {
	for _, c := range k.w.apiService.Status.Conditions {
		if c.Status != apiregistrationv1.ConditionTrue {
			withVerdict(http.StatusServiceUnavailable, "text/plain; charset=utf-8", "service unavailable\n")(w, r)
			return
		}
	}
	resp, err := k.ask(r, r.URL.RequestURI())
	if err != nil {
		withVerdict(http.StatusServiceUnavailable, "text/plain; charset=utf-8", "error trying to reach service: "+err.Error())(w, r)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	w.WriteHeader(resp.StatusCode)
	_ = http.NewResponseController(w).Flush()
	buffer := make([]byte, 4096)
	for {
		n, err := resp.Body.Read(buffer)
		_, _ = w.Write(buffer[:n])
		_ = http.NewResponseController(w).Flush()
		if err != nil {
			return
		}
	}
}

// ask requests a path of the extension server, with the deadline of discovery.
func (k *kubeAPIServer) ask(r *http.Request, target string) (*http.Response, error) {
	if k.proxy == nil || k.w.service == nil || len(k.w.slice.Endpoints) == 0 {
		return nil, fmt.Errorf("no endpoints available for service %q", "orders")
	}
	address := net.JoinHostPort(k.w.slice.Endpoints[0].Addresses[0], itoa(*k.w.slice.Ports[0].Port))
	if name := k.w.service.Spec.ExternalName; name != "" {
		address = net.JoinHostPort(name, itoa(*k.w.apiService.Spec.Service.Port))
	}
	if k.w.elsewhere != "" {
		address = k.w.elsewhere
	}
	u, err := url.Parse("https://" + address + target)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(r.Context(), r.Method, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Remote-User", cmp.Or(r.Header.Get("Impersonate-User"), "admin"))
	client := *k.proxy
	if r.URL.Query().Get("watch") == "" {
		client.Timeout = min(proxyPatience, k.w.proxyPatience())
	}
	return client.Do(req)
}

func (w *testCluster) proxyPatience() time.Duration {
	if w.cfg.Timeout > 0 {
		return w.cfg.Timeout / 2
	}
	return proxyPatience
}

// object answers a get or a list of the objects of the world.
func (k *kubeAPIServer) object(w http.ResponseWriter, r *http.Request) {
	all := append([]metav1.Object{k.w.apiService}, k.w.objects...)
	if k.w.service != nil {
		all = append(all, k.w.service)
	}
	if len(k.w.slice.Endpoints) > 0 {
		all = append(all, k.w.slice)
	}
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		refusing(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())(w, r)
		return
	}
	items := []metav1.Object{}
	for _, o := range all {
		collection := collectionOf(o)
		switch {
		case r.URL.Path == collection+"/"+o.GetName():
			answering(http.StatusOK, o)(w, r)
			return
		case r.URL.Path == collection && selector.Matches(labels.Set(o.GetLabels())):
			items = append(items, o)
		}
	}
	if isCollection(r.URL.Path) {
		answering(http.StatusOK, map[string]any{"kind": "List", "apiVersion": "v1", "items": items})(w, r)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	refusing(http.StatusNotFound, metav1.StatusReasonNotFound, r.URL.Path+" not found")(w, r)
}

func collectionOf(o metav1.Object) string {
	core := "/api/v1/namespaces/" + o.GetNamespace()
	switch o.(type) {
	case *corev1.Service:
		return core + "/services"
	//lint:ignore SA1019 deprecated, and still written for Services without selector
	case *corev1.Endpoints:
		return core + "/endpoints"
	case *corev1.Pod:
		return core + "/pods"
	case *corev1.ConfigMap:
		return core + "/configmaps"
	case *discoveryv1.EndpointSlice:
		return "/apis/discovery.k8s.io/v1/namespaces/" + o.GetNamespace() + "/endpointslices"
	case *appsv1.Deployment:
		return "/apis/apps/v1/namespaces/" + o.GetNamespace() + "/deployments"
	}
	return apiServicesPath
}

func isCollection(path string) bool {
	for _, suffix := range []string{"/services", "/pods", "/configmaps", "/endpointslices", "/deployments", "/apiservices"} {
		if strings.HasSuffix(path, suffix) {
			return true
		}
	}
	return false
}
