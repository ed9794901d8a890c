package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"portico.dev/internal/coreapi"
	"portico.dev/internal/dispatch/dispatchtest"
	"portico.dev/internal/fairness"
	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/request"
	"portico.dev/internal/routetable"
	"portico.dev/internal/store"
	"portico.dev/internal/transport"
)

// useFairness configures flow control from the objects of local groups in a separate store, which b
// serves too, together with the given backends, named <name>.example.com/v1.
func (b *bench) useFairness(t testing.TB, seats int, backends map[string]http.Handler) map[string]*transport.Backend {
	t.Helper()
	s, err := store.New(store.Config{DataDir: t.TempDir(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	runUntilEnd(t, s.Run, s.Ready())
	anything := authorizerfactory.NewAlwaysAllowAuthorizer()
	core, err := coreapi.New(coreapi.Config{Store: s, Authorizer: anything, RuleResolver: anything})
	if err != nil {
		t.Fatal(err)
	}
	runUntilEnd(t, core.Run, core.Ready())
	client, err := kubernetes.NewForConfig(core.ClientConfig(&user.DefaultInfo{Name: "admin"}))
	if err != nil {
		t.Fatal(err)
	}
	if b.config.Fairness, err = fairness.New(fairness.Config{Client: client, Seats: seats}); err != nil {
		t.Fatal(err)
	}
	runUntilEnd(t, b.config.Fairness.Run, b.config.Fairness.Ready())
	eventually(t, "the default set is in use", func() bool { return b.enter(t.Context(), "jane").Level.Name == "global-default" })
	b.objects = client

	set := transport.New(transport.Options{Engine: enginetest.Backend(t)})
	t.Cleanup(set.Close)
	reached := map[string]*transport.Backend{}
	var routes []*routetable.Route
	for name, h := range backends {
		reached[name] = dispatchtest.Backend(t, set, name, h)
		routes = append(routes, &routetable.Route{
			GroupVersion: schema.GroupVersion{Group: name + ".example.com", Version: "v1"}, Name: "v1." + name + ".example.com",
			Backend: reached[name], Condition: dispatchtest.Condition(apiregistrationv1.ConditionTrue, "Passed", ""),
		})
	}
	table := routetable.NewTable(routes, true)
	router := routerOf(table)
	router.Local, router.LocalGroupVersions = ForLocal(nil, core.Handler()), func() sets.Set[schema.GroupVersion] { return core.GroupVersions() }
	b.handler = router.build().ServeHTTP
	return reached
}

// useFixedLevel moves authenticated users to a separate level. It neither lends nor borrows seats, so its limit does not change with
// the demand.
func (b *bench) useFixedLevel(t *testing.T, name string) {
	t.Helper()
	api, create := b.objects.FlowcontrolV1(), metav1.CreateOptions{}
	if _, err := api.PriorityLevelConfigurations().Create(t.Context(), &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: ptr.To[int32](20), LendablePercent: ptr.To[int32](0), BorrowingLimitPercent: ptr.To[int32](0),
				LimitResponse: flowcontrolv1.LimitResponse{
					Type:    flowcontrolv1.LimitResponseTypeQueue,
					Queuing: &flowcontrolv1.QueuingConfiguration{Queues: 8, HandSize: 2, QueueLengthLimit: 50},
				},
			},
		},
	}, create); err != nil {
		t.Fatal(err)
	}
	if _, err := api.FlowSchemas().Create(t.Context(), &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: name}, MatchingPrecedence: 50,
			DistinguisherMethod: &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects:      []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: user.AllAuthenticated}}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, Namespaces: []string{"*"}, ClusterScope: true}},
			}},
		},
	}, create); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the level is in use", func() bool { return b.enter(t.Context(), "jane").Level.Name == name })
}

// enter takes a turn and returns it at once, unless it was the last free one within the context.
func (b *bench) enter(ctx context.Context, name string) *fairness.Reservation {
	turn := b.take(ctx, name)
	if turn.Admitted {
		turn.Release()
	}
	return turn
}

func (b *bench) take(ctx context.Context, name string) *fairness.Reservation {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/pods", nil)
	info, err := request.NewResolver().Info(r)
	if err != nil {
		panic(err)
	}
	return b.config.Fairness.Reserve(r.WithContext(apirequest.WithRequestInfo(ctx, info)), info, testUser(name))
}

func testUser(name string) user.Info {
	return &user.DefaultInfo{Name: name, Groups: []string{user.AllAuthenticated}}
}

func runUntilEnd(t testing.TB, run func(context.Context) error, ready <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-ready:
	case <-time.After(time.Minute):
		t.Fatal("the component was not ready within a minute, want it to be ready")
	}
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("not reached within a minute: %s, want it to be true", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

const janes = "Test-Group: " + user.AllAuthenticated

// send sends a request and does not wait for the response.
func send(ctx context.Context, chain http.Handler, target string) (*httptest.ResponseRecorder, <-chan struct{}) {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	r.Header.Set("Test-User", "jane")
	r.Header.Set("Test-Group", user.AllAuthenticated)
	w, done := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(done)
		chain.ServeHTTP(w, r)
	}()
	return w, done
}

// A backend hangs. It receives many more requests than there are seats, because each request releases its seat
// while it waits. At the backend's limit requests are rejected at once. Requests for other backends are served.
func TestHangingBackendReleasesSeats(t *testing.T) {
	t.Parallel()
	b := newBench("jane *")
	var hung atomic.Int64
	const seats, many = 12, 40
	backends := b.useFairness(t, seats, map[string]http.Handler{
		"well": nil,
		"hung": http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			hung.Add(1)
			<-r.Context().Done()
		}),
	})
	chain := b.chain(t)
	ctx, cancel := context.WithCancel(t.Context())
	for range many {
		_, done := send(ctx, chain, "/apis/hung.example.com/v1/namespaces/n/foos/x")
		defer func() { <-done }()
	}
	defer cancel()
	eventually(t, "all of them are with the backend", func() bool { return hung.Load() == many })
	takePlaces(t, backends["hung"]) // the remaining places
	for target, code := range map[string]int{
		"/apis/hung.example.com/v1/namespaces/n/foos/x": http.StatusTooManyRequests,
		"/apis/well.example.com/v1/namespaces/n/foos/x": http.StatusOK,
		"/api/v1/namespaces/default/configmaps":         http.StatusOK,
	} {
		for range 2 * seats {
			w, done := send(t.Context(), chain, target)
			<-done
			if w.Code != code {
				t.Fatalf("GET %s while a backend hangs = %d %s, want %d", target, w.Code, w.Body, code)
			}
		}
	}
	if hung.Load() != many {
		t.Errorf("%d requests reached the hanging backend, want %d", hung.Load(), many)
	}
}

// takePlaces takes all free places of a backend, each for another user, until the test ends.
func takePlaces(t *testing.T, b *transport.Backend) {
	t.Helper()
	for i := 0; ; i++ {
		p := new(transport.Slot)
		if b.Admit(p, fmt.Sprint("user ", i)) != nil {
			return
		}
		t.Cleanup(p.Release)
	}
}

func TestWatchReleasesItsSeat(t *testing.T) {
	b := newBench("jane *")
	streams := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "{}\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	const seats = 12
	b.useFairness(t, seats, map[string]http.Handler{"well": streams})
	for kind, target := range map[string]string{
		"local, with initial events":  "/api/v1/configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		"local, from now on":          "/api/v1/configmaps?watch=1",
		"of a backend":                "/apis/well.example.com/v1/foos?watch=1",
		"that is refused: no such RV": "/api/v1/configmaps?watch=1&resourceVersion=never",
	} {
		t.Run(kind, func(t *testing.T) {
			front := httptest.NewServer(b.chain(t))
			defer front.Close()
			for range 2 * seats {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, front.URL+target, nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Test-User", "jane")
				r.Header.Set("Test-Group", user.AllAuthenticated)
				resp, err := front.Client().Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if resp.StatusCode == http.StatusTooManyRequests || resp.Header.Get("X-Kubernetes-PF-FlowSchema-UID") == "" {
					t.Fatalf("GET %s = %s with the header %v, want a flow schema and not 429", target, resp.Status, resp.Header)
				}
			}
		})
	}
}

func TestFlowHeadersOfResponses(t *testing.T) {
	t.Parallel()
	b := newBench("jane get pods p", "jane create pods p")
	b.useFairness(t, 12, nil)
	for situation, test := range map[string]struct {
		method, target string
		code           int
		told           bool
	}{
		"served":                 {http.MethodGet, "/api/v1/namespaces/n/pods/p", http.StatusNotFound, true},
		"forbidden":              {http.MethodGet, "/api/v1/namespaces/n/secrets", http.StatusForbidden, true},
		"an exec takes no turns": {http.MethodPost, "/api/v1/namespaces/n/pods/p/exec", http.StatusServiceUnavailable, false}, // no kubelets in this test
	} {
		t.Run(situation, func(t *testing.T) {
			w := b.do(t, test.method, test.target, "Test-User: jane", janes)
			schema, level := w.Header().Get("X-Kubernetes-PF-FlowSchema-UID"), w.Header().Get("X-Kubernetes-PF-PriorityLevel-UID")
			if w.Code != test.code || (len(schema) == 36) != test.told || (len(level) == 36) != test.told {
				t.Errorf("%s %s = %d %s with the schema %q and the level %q, want %d, UIDs present %t", test.method, test.target, w.Code, w.Body, schema, level, test.code, test.told)
			}
		})
	}
	t.Run("refused, since no turn came in time", func(t *testing.T) {
		b.useFixedLevel(t, "fixed")
		gone, cancel := context.WithCancel(t.Context())
		cancel() // a request that would have to wait is rejected
		for taken := true; taken; {
			turn := b.take(gone, "joe")
			if taken = turn.Admitted; taken {
				defer turn.Release()
			}
		}
		b.config.RequestTimeout = 2 * time.Second // a request waits a quarter of it
		w := b.do(t, http.MethodGet, "/api/v1/namespaces/n/pods/p", "Test-User: jane", janes)
		status := statusOf(t, w)
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" || status.Reason != "TooManyRequests" ||
			status.Details.RetryAfterSeconds != 1 || len(w.Header().Get("X-Kubernetes-PF-FlowSchema-UID")) != 36 {
			t.Errorf("response without a free seat = %d with the header %v and the body %s, want 429 with Retry-After 1 and a flow schema", w.Code, w.Header(), strings.TrimSpace(w.Body.String()))
		}
		if w := b.do(t, http.MethodGet, "/api/v1/namespaces/n/pods/p", "Test-User: jane", "Test-Group: "+user.SystemPrivilegedGroup); w.Code == http.StatusTooManyRequests {
			t.Errorf("request of an administrator without a free seat = %d, want another status than 429", w.Code)
		}
	})
}

// BenchmarkFlowControl compares fairness with the limit on requests in flight, in the chain.
func BenchmarkFlowControl(b *testing.B) {
	for name, seats := range map[string]int{"bound": 0, "turns": 600} {
		b.Run(name, func(b *testing.B) {
			b2 := newBench("jane *")
			b2.config.Audit = nil
			if seats > 0 {
				b2.useFairness(b, seats, nil)
			}
			chain, err := NewChain(b2.config, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
			if err != nil {
				b.Fatal(err)
			}
			r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/apis/up.example.com/v1/namespaces/n/foos/x", nil)
			r.Header.Set("Test-User", "jane")
			r.Header.Set("Test-Group", user.AllAuthenticated)
			b.ReportAllocs()
			for b.Loop() {
				chain.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
}
