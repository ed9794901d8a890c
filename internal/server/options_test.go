package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/dispatch/dispatchtest"
	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/routetable"
	"portico.dev/internal/transport"
)

// remote sets a router with one remote group-version, up.example.com/v1, as the end of b's chain.
func (b *bench) remote(t *testing.T, options routetable.Options, h http.Handler, change ...func(*transport.Options)) *transport.Backend {
	t.Helper()
	o := transport.Options{Engine: enginetest.Backend(t)}
	for _, c := range change {
		c(&o)
	}
	set := transport.New(o)
	t.Cleanup(set.Close)
	route := routetable.Route{
		GroupVersion: schema.GroupVersion{Group: "up.example.com", Version: "v1"}, Name: "v1.up.example.com", Options: options,
		Backend: dispatchtest.Backend(t, set, "up", h), Condition: dispatchtest.Condition(apiregistrationv1.ConditionTrue, "Passed", ""),
	}
	table := routetable.NewTable([]*routetable.Route{&route}, true)
	router := routerOf(table)
	router.InitialEvents = ignoresAll{}
	b.handler = router.build().ServeHTTP
	return route.Backend
}

// ignoresAll is a dispatch.InitialEvents for servers that ignore requests for initial events.
type ignoresAll struct{}

func (ignoresAll) Rejects(schema.GroupVersionResource) bool { return true }

const foo = "/apis/up.example.com/v1/namespaces/n/foos/x"

// A failure of a backend has the same message in the response, in the access log and in the audit event.
func TestBackendFailureHasSameMessageInResponseAndLogs(t *testing.T) {
	b := newBench("alice *")
	core, logs := observer.New(zap.InfoLevel)
	b.config.AccessLog = zap.New(core)
	backend := b.remote(t, routetable.Options{}, nil)
	address := backend.Endpoints()[0].Address
	b.do(t, http.MethodGet, foo, "Test-User: alice")
	if e := b.events[0]; e.ResponseStatus.Message != "" || e.Annotations["portico.dev/endpoint"] != address || e.Annotations["portico.dev/attempts"] != "1" {
		t.Errorf("audit event of a successful request = %+v with the annotations %v, want no message, endpoint %s and 1 attempt", e.ResponseStatus, e.Annotations, address)
	}
	for name, prepare := range map[string]func(){
		"the backend is at its limit": func() {
			takePlaces(t, backend)
		},
	} {
		prepare()
		w := b.do(t, http.MethodGet, foo, "Test-User: alice")
		told := statusOf(t, w).Message
		e := b.events[len(b.events)-1]
		if w.Code != http.StatusTooManyRequests || e.ResponseStatus.Message != told || e.ResponseStatus.Status != metav1.StatusFailure {
			t.Errorf("%s: response %d %q and audit status %+v, want 429 and the same message in both", name, w.Code, told, e.ResponseStatus)
		}
		if logs.FilterField(zap.String("failure", told)).Len() != 1 {
			t.Errorf("%s: access log = %v, want one line with the failure %q", name, logs.All(), told)
		}
	}
}

func TestAuditEventNamesUnavailableRoute(t *testing.T) {
	b := newBench("alice *")
	down := routetable.Route{
		GroupVersion: schema.GroupVersion{Group: "down.example.com", Version: "v1"}, Name: "v1.down.example.com",
		Condition: dispatchtest.Condition(apiregistrationv1.ConditionFalse, "ServiceNotFound", "it is not there"),
	}
	table := routetable.NewTable([]*routetable.Route{&down}, true)
	b.handler = routerOf(table).build().ServeHTTP
	w := b.do(t, http.MethodGet, "/apis/down.example.com/v1/foos", "Test-User: alice")
	if e := b.events[0]; e.ResponseStatus.Message != statusOf(t, w).Message || e.Annotations["portico.dev/attempts"] != "" {
		t.Errorf("audit event of an unavailable route = %+v with the annotations %v, want the message of the response and no attempts", e.ResponseStatus, e.Annotations)
	}
}

func TestRouteOptionsReachProxy(t *testing.T) {
	b := newBench("alice *")
	b.remote(t, routetable.Options{InitialEvents: routetable.InitialEventsReject, ConvertTable: true, ConvertMetadata: true},
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":"Foo","metadata":{"name":"x"}}`))
		}))
	w := b.do(t, http.MethodGet, "/apis/up.example.com/v1/foos?watch=1&sendInitialEvents=true", "Test-User: alice")
	if w.Code != http.StatusUnprocessableEntity {
		t.Errorf("watch with sendInitialEvents = %d %s, want 422", w.Code, w.Body)
	}
	for _, as := range []string{"Table", "PartialObjectMetadata"} {
		w = b.do(t, http.MethodGet, foo, "Test-User: alice", "Accept: application/json;as="+as+";v=v1;g=meta.k8s.io")
		var kind metav1.TypeMeta
		if err := json.Unmarshal(w.Body.Bytes(), &kind); err != nil || kind.Kind != as {
			t.Errorf("response as %s = %s (decoding error %v), want kind %s", as, w.Body, err, as)
		}
	}
}

func TestInitialEventsFollowAnnotation(t *testing.T) {
	for mode, code := range map[routetable.InitialEvents]int{
		routetable.InitialEventsAuto: http.StatusUnprocessableEntity, routetable.InitialEventsReject: http.StatusUnprocessableEntity, routetable.InitialEventsPass: http.StatusOK,
	} {
		b := newBench("alice *")
		b.remote(t, routetable.Options{InitialEvents: mode}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		if w := b.do(t, http.MethodGet, "/apis/up.example.com/v1/foos?watch=1&sendInitialEvents=true", "Test-User: alice"); w.Code != code {
			t.Errorf("watch with sendInitialEvents in mode %d = %d %s, want %d", mode, w.Code, w.Body, code)
		}
		if w := b.do(t, http.MethodGet, "/apis/up.example.com/v1/foos?watch=1", "Test-User: alice"); w.Code != http.StatusOK {
			t.Errorf("plain watch in mode %d = %d %s, want 200", mode, w.Code, w.Body)
		}
	}
}

// A subresource that its APIService lists as long-running releases its seat once it responds, outlives the deadline, is
// counted as long-running, and ends when the server drains.
func TestAnnotatedSubresourceIsLongRunning(t *testing.T) {
	t.Parallel()
	b := newBench("alice *")
	b.config.MaxInFlight, b.config.RequestTimeout = 1, time.Second
	gone := make(chan struct{})
	b.remote(t, routetable.Options{LongRunningSubresources: []string{"console"}},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/console") {
				return
			}
			_, _ = w.Write([]byte("hello"))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			close(gone)
		}))
	chain := b.chain(t)
	front := httptest.NewServer(chain)
	t.Cleanup(front.Close)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.URL+foo+"/console", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Test-User", "alice")
	resp, err := front.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := resp.Body.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the only seat is free again
		other := httptest.NewRequest(http.MethodGet, foo, nil)
		other.Header.Set("Test-User", "alice")
		w := httptest.NewRecorder()
		chain.ServeHTTP(w, other)
		if w.Code != http.StatusOK {
			t.Fatalf("another request while the console is open = %d %s, want 200", w.Code, w.Body)
		}
	}
	select {
	case <-gone:
		t.Fatal("the console ended with the request deadline, want it open")
	case <-time.After(2 * b.config.RequestTimeout):
	}
	if err := b.config.Drainer.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	<-gone
}
