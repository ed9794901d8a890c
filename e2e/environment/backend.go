package environment

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/pki"
)

// Resource is the namespaced resource of every group of the backend.
const Resource = "things"

// serveBackend runs an extension server that serves any group in the path of a request. Objects are precomputed
// bytes, so that its cost is small compared with the proxies'.
func serveBackend(o *commands, announce announcement) error {
	certificate, err := pki.StaticKeyPair(o.Serving.Certificate, o.Serving.Key)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", cmp.Or(o.Listen, "127.0.0.1:0"))
	if err != nil {
		return err
	}
	b := newBackend()
	if err := announce(l.Addr().String(), b.counts()); err != nil {
		return err
	}
	s := &http.Server{
		Handler: b, TLSConfig: pki.ServerConfig(certificate), ReadHeaderTimeout: time.Minute,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 250}, ConnState: b.countConnection,
	}
	return s.ServeTLS(l, "", "")
}

type backend struct {
	small, large []byte
	podMetrics   []byte

	requests    atomic.Int64 // for objects
	connections atomic.Int64 // that are open
}

func (b *backend) counts() map[string]func() int64 {
	return map[string]func() int64{askRequests: b.requests.Load, askConnections: b.connections.Load}
}

// countConnection is a http.Server.ConnState.
func (b *backend) countConnection(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		b.connections.Add(1)
	case http.StateClosed, http.StateHijacked:
		b.connections.Add(-1)
	}
}

func newBackend() *backend {
	one := []byte(`{"apiVersion":"bench.example.com/v1","kind":"Thing","metadata":{"name":"small","namespace":"ns1"},"data":"` +
		strings.Repeat("s", 914) + `"}`)
	list := append([]byte(`"},"items":[`), one...)
	for len(list) < 100<<10-len(one) {
		list = append(append(list, ','), one...)
	}
	return &backend{small: one, large: append(list, "]}"...), podMetrics: podMetrics(PodMetrics)}
}

// PodMetrics is the number of items in the list at PodMetricsPath.
const PodMetrics = 5000

// PodMetricsPath returns the path of a list of PodMetrics, in a group and namespace of the benchmark.
func PodMetricsPath(n int) string { return Path(n) + "?of=pods" }

func podMetrics(n int) []byte {
	var list bytes.Buffer
	list.WriteString(`{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":[`)
	for i := range n {
		if i > 0 {
			list.WriteByte(',')
		}
		fmt.Fprintf(&list, `{"metadata":{"name":"web-%05d-7d4b9c6f5-x2k8q","namespace":%q,"creationTimestamp":"2026-11-27T06:00:00Z","labels":{"app":"web","pod-template-hash":"7d4b9c6f5"}},`+
			`"timestamp":"2026-11-27T05:59:45Z","window":"15.042s","containers":[{"name":"web","usage":{"cpu":"%dn","memory":"%dKi"}}]}`, i, Namespace, 1_000_003*i, 20_000+i)
	}
	list.WriteString("]}\n")
	return list.Bytes()
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// /apis/<group>/<version>/namespaces/<namespace>/things[/<name>]
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) < 6 || parts[5] != Resource {
		b.discovery(w, r, parts)
		return
	}
	b.requests.Add(1)
	w.Header()["Content-Type"] = []string{"application/json"}
	switch {
	case r.Method == http.MethodPost:
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(b.small)
	case len(parts) == 7:
		_, _ = w.Write(b.small)
	case strings.Contains(r.URL.RawQuery, "watch="):
		watch(w, r)
	case r.URL.RawQuery == "of=pods":
		_, _ = w.Write(b.podMetrics)
	default:
		_, _ = w.Write([]byte(`{"apiVersion":"bench.example.com/v1","kind":"ThingList","metadata":{"resourceVersion":"` + resourceVersion(time.Now())))
		_, _ = w.Write(b.large)
	}
}

// resourceVersion returns a resource version that increases with time, for lists and events.
func resourceVersion(at time.Time) string { return strconv.FormatInt(at.UnixNano(), 10) }

// watch sends an event with the current time at regular intervals. Streams start at different offsets within the
// interval.
func watch(w http.ResponseWriter, r *http.Request) {
	flush := http.NewResponseController(w)
	w.WriteHeader(http.StatusOK)
	if flush.Flush() != nil {
		return
	}
	every, err := time.ParseDuration(r.FormValue("every"))
	if err != nil { // an idle stream
		<-r.Context().Done()
		return
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case now := <-ticker.C:
			_, err := fmt.Fprintf(w, `{"type":"MODIFIED","object":{"apiVersion":"bench.example.com/v1","kind":"Thing","metadata":{"name":"small","namespace":%q,"resourceVersion":%[2]q,"annotations":{"sent":%[2]q}},"data":%q}}`+"\n",
				Namespace, resourceVersion(now), padding)
			if err != nil || flush.Flush() != nil {
				return
			}
		}
	}
}

var padding = strings.Repeat("w", 150)

// discovery serves the discovery documents. The aggregated document contains the group that belongs to the Service of
// the request.
func (b *backend) discovery(w http.ResponseWriter, r *http.Request, parts []string) {
	var answer any
	switch {
	case len(parts) == 3 && parts[0] == "apis":
		answer = metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: parts[1] + "/" + parts[2],
			APIResources: []metav1.APIResource{{Name: Resource, SingularName: "thing", Namespaced: true, Kind: "Thing", Verbs: verbs}},
		}
	case r.URL.Path == "/apis" && strings.Contains(r.Header.Get("Accept"), "APIGroupDiscoveryList"):
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		answer = aggregated(requestedGroup(r))
	case r.URL.Path == "/readyz": // a front door probes API servers
		return
	default:
		http.NotFound(w, r)
		return
	}
	var body bytes.Buffer
	_ = json.NewEncoder(&body).Encode(answer) // plain structs always encode
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	_, _ = w.Write(body.Bytes())
}

var verbs = []string{"create", "get", "list", "watch"}

func aggregated(group string) apidiscoveryv2.APIGroupDiscoveryList {
	return apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
		Items: []apidiscoveryv2.APIGroupDiscovery{{
			ObjectMeta: metav1.ObjectMeta{Name: group},
			Versions: []apidiscoveryv2.APIVersionDiscovery{{Version: "v1", Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Resources: []apidiscoveryv2.APIResourceDiscovery{{
				Resource: Resource, SingularResource: "thing", Scope: apidiscoveryv2.ScopeNamespace, Verbs: verbs,
				ResponseKind: &metav1.GroupVersionKind{Group: group, Version: "v1", Kind: "Thing"},
			}}}},
		}},
	}
}

// ServiceOf returns the name of the numbered Service.
func ServiceOf(n int) string { return fmt.Sprintf("bench-%05d", n) }

// GroupName returns the group behind the numbered Service.
func GroupName(n int) string { return ServiceOf(n) + ".example.com" }

// requestedGroup returns the group that a request is for. It uses the TLS server name, because kube-apiserver sets the Host
// header to the target of an ExternalName Service.
func requestedGroup(r *http.Request) string {
	if r.TLS != nil && r.TLS.ServerName != "" {
		return GroupOf(r.TLS.ServerName)
	}
	return GroupOf(r.Host)
}

// GroupOf returns the group behind a Service. host begins with the name of the Service.
func GroupOf(host string) string {
	service, _, _ := strings.Cut(host, ".")
	return service + ".example.com"
}

// Path returns the path of a group's collection in the namespace in which the user has permissions.
func Path(n int) string {
	return "/apis/" + GroupName(n) + "/v1/namespaces/" + Namespace + "/" + Resource
}
