package drill

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/pki"
)

// add appends a request during the fault.
func (h *History) add(r Request) {
	h.Broken = broke
	r.Start, r.Took = turned.Add(time.Second), max(r.Took, time.Millisecond)
	h.Requests = append(h.Requests, r)
}

func TestMutatedHistoriesOfClustersFail(t *testing.T) {
	document := Request{Who: Documents, Verb: "get", Code: 200, Saw: fromMemory}
	list := Request{Who: Informers, Verb: "list", Code: 200}
	good := func(h *History) {
		h.Broken, h.Observations[1].Reason = broke, v1alpha1.ReasonNoReadyAPIServer
		h.add(document)
		for range informers {
			h.add(list)
		}
	}
	expected := []Expectation{
		documentsAnswer(), documentsFromMemory(), refusedAfter(time.Second, time.Second), conditionHasReason(v1alpha1.ReasonNoReadyAPIServer), informersListOnce(),
	}
	h := survived()
	good(h)
	for _, f := range judge(h, expected) {
		if !f.Holds {
			t.Errorf("finding %s does not hold: %s; want it to hold", f.Expected, f.Seen)
		}
	}
	for name, tt := range map[string]struct {
		mutate func(*History)
		fails  Expectation
	}{
		"no document is requested":        {func(h *History) { h.Requests = nil }, documentsAnswer()},
		"a document fails":                {func(h *History) { h.add(Request{Who: Documents, Code: 503}) }, documentsAnswer()},
		"a document is late":              {func(h *History) { h.add(Request{Who: Documents, Code: 200, Took: 4 * time.Second}) }, documentsAnswer()},
		"a document has no warning":       {func(h *History) { h.add(Request{Who: Documents, Code: 200, Saw: fromAPIServer}) }, documentsFromMemory()},
		"no document during the fault":    {func(h *History) { h.Requests = nil }, documentsFromMemory()},
		"a request waits and gets 504":    {func(h *History) { h.add(Request{Who: Subject, Verb: "get", Code: 504}) }, refusedAfter(time.Second, time.Second)},
		"a request waits for its 503":     {func(h *History) { h.add(Request{Who: Subject, Verb: "get", Code: 503, Took: 1500 * time.Millisecond}) }, refusedAfter(time.Second, time.Second)},
		"no request long after the fault": {func(h *History) { h.Requests = nil }, refusedAfter(time.Second, time.Second)},
		"the condition has another reason": {func(h *History) { h.Observations[1].Reason = "InvalidServer" },
			conditionHasReason(v1alpha1.ReasonNoReadyAPIServer)},
		"the condition never turns":   {func(h *History) { h.Observations = h.Observations[:1] }, conditionHasReason(v1alpha1.ReasonNoReadyAPIServer)},
		"an informer lists again":     {func(h *History) { h.add(list) }, informersListOnce()},
		"a list of an informer fails": {func(h *History) { h.Requests[len(h.Requests)-1].Code = 500 }, informersListOnce()},
	} {
		h := survived()
		good(h)
		tt.mutate(h)
		if f := judge(h, []Expectation{tt.fails})[0]; f.Holds || f.Seen == "" {
			t.Errorf("%s: finding %q = %t, %q; want a failure with the observation", name, f.Expected, f.Holds, f.Seen)
		}
	}
}

// apiServerOf serves requests with the name in the client's certificate and selected header fields.
func apiServerOf(t *testing.T, serving *pki.KeyPair) (address string) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := "none"
		if len(r.TLS.PeerCertificates) > 0 {
			name = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		_, _ = io.WriteString(w, strings.Join([]string{
			r.Proto, r.Host, r.URL.RequestURI(), name, r.Header.Get("Authorization"), r.Header.Get("Impersonate-User"), r.Header.Get("X-Forwarded-For"),
		}, " "))
	}))
	s.TLS, s.EnableHTTP2 = pki.ServerConfig(serving), true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func TestRelayAddsNothingToRequests(t *testing.T) {
	authority, err := pki.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	issue := func(l pki.Leaf) (cert, key []byte, pair *pki.KeyPair) {
		if cert, key, err = authority.Issue(l); err == nil {
			pair, err = pki.StaticKeyPair(cert, key)
		}
		if err != nil {
			t.Fatal(err)
		}
		return cert, key, pair
	}
	const name = "kubernetes.default.svc"
	_, _, serving := issue(pki.Leaf{CommonName: "api", DNSNames: []string{name}, Server: true})
	cert, key, own := issue(pki.Leaf{CommonName: "front-door", Client: true})
	_, _, other := issue(pki.Leaf{CommonName: "front-door", Client: true})
	r, err := newRelay(apiServerOf(t, serving), "127.0.0.1", &v1alpha1.ClusterServer{CABundle: authority.PEM()},
		&corev1.Secret{Data: map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	send := func(path string, presented ...*x509.Certificate) *httptest.ResponseRecorder {
		q := httptest.NewRequest(http.MethodGet, "https://"+relayName+path, nil)
		q.TLS = &tls.ConnectionState{PeerCertificates: presented}
		q.Header.Set("Authorization", "token")
		q.Header.Set("Impersonate-User", "alice")
		w := httptest.NewRecorder()
		r.ServeHTTP(w, q)
		return w
	}
	for _, c := range []struct {
		phase     int32
		path      string
		presented []*x509.Certificate
		code      int
		body      string
	}{
		{running, "/api/v1/pods?limit=%2f", nil, 200, "HTTP/2.0 " + name + " /api/v1/pods?limit=%2f none token alice "},
		{running, "/readyz", []*x509.Certificate{own.Leaf()}, 200, "HTTP/2.0 " + name + " /readyz front-door token alice "},
		{running, "/api", []*x509.Certificate{other.Leaf()}, 200, "HTTP/2.0 " + name + " /api none token alice "},
		{stopping, "/api", nil, 200, "HTTP/2.0 " + name + " /api none token alice "},
		{stopping, "/readyz", nil, 500, "[-]shutdown failed: reason withheld\n"},
		{starting, "/api", nil, 403, "the caches are not complete\n"},
		{starting, "/readyz", nil, 403, "the caches are not complete\n"},
	} {
		r.phase.Store(c.phase)
		w := send(c.path, c.presented...)
		if w.Code != c.code || w.Body.String() != c.body {
			t.Errorf("phase %d: GET %s = %d %q, want %d %q", c.phase, c.path, w.Code, w.Body, c.code, c.body)
		}
		if closes := w.Header().Get("Connection") == "close"; closes != (c.phase == stopping && c.code == http.StatusOK) {
			t.Errorf("phase %d: GET %s ends the connection = %t, want it only while the API server stops", c.phase, c.path, closes)
		}
	}
	if got := r.served.Load(); got != 3 {
		t.Errorf("the relay counted %d requests, want the 3 that are no probes", got)
	}
}

func TestInformerResumesFromItsLastResourceVersion(t *testing.T) {
	i := &informer{objects: map[string]string{"written-0": "1"}, version: "1"}
	for _, event := range []string{
		`{"type":"ADDED","object":{"metadata":{"name":"written-1","resourceVersion":"2"}}}`,
		`{"type":"MODIFIED","object":{"metadata":{"name":"written-1","resourceVersion":"3"}}}`,
		`{"type":"DELETED","object":{"metadata":{"name":"written-0","resourceVersion":"4"}}}`,
		`{"type":"ADDED","object":{"metadata":{"name":"other","resourceVersion":"5"}}}`,
		`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"6"}}}`,
	} {
		if why := i.apply([]byte(event)); why != "" {
			t.Errorf("apply(%s) = %q, want none", event, why)
		}
	}
	if want := map[string]string{"written-1": "3"}; !maps.Equal(i.objects, want) || i.version != "6" || !i.has(want) {
		t.Errorf("the informer has %v at %q, want %v at 6", i.objects, i.version, want)
	}
	if why := i.apply([]byte(`{"type":"ERROR","object":{"code":500,"message":"etcd"}}`)); why != "etcd" || i.version != "6" {
		t.Errorf("apply of an error = %q, next watch from %q; want etcd and 6", why, i.version)
	}
	if why := i.apply([]byte(`{"type":"ADDED","obj`)); why == "" || i.version != "6" {
		t.Errorf("apply of half an event = %q, next watch from %q; want a reason and 6", why, i.version)
	}
	if why := i.apply([]byte(`{"type":"ERROR","object":{"code":410,"message":"too old"}}`)); why != "too old" || i.version != "" {
		t.Errorf("apply of 410 Gone = %q, next watch from %q; want too old and a list", why, i.version)
	}
}

func TestDrillOfClusterIsSkippedWithoutOne(t *testing.T) {
	objects := map[string]*v1alpha1.Cluster{
		"empty": {}, "closed": {Spec: v1alpha1.ClusterSpec{
			Server: v1alpha1.ClusterServer{Endpoints: []string{"10.0.0.1:6443"}}, Maintenance: &v1alpha1.ClusterMaintenance{Mode: v1alpha1.Closed}}},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		object := objects[strings.TrimPrefix(r.URL.Path, clustersPath+"/")]
		if object == nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", jsonType)
		_ = json.NewEncoder(w).Encode(object)
	}))
	t.Cleanup(s.Close)
	for want, target := range map[string]Target{
		"name one with --cluster":          {},
		"not about an extension server":    {Gateway: &adoption.Service{}},
		"has no Cluster east":              {Cluster: "east"},
		"Cluster empty has no endpoints":   {Cluster: "empty"},
		"Cluster closed is in maintenance": {Cluster: "closed"},
	} {
		target.Name, target.Config = "a test", &rest.Config{Host: s.URL}
		r := Run(t.Context(), clusterDrills()[0], target, func(string) {})
		if r.Verdict != Skipped || !strings.Contains(r.Why, want) {
			t.Errorf("drill at %+v: verdict %s, reason %q; want skipped, %q", target, r.Verdict, r.Why, want)
		}
	}
}
