package fairness_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics/legacyregistry"

	"portico.dev/internal/coreapi"
	"portico.dev/internal/fairness"
	"portico.dev/internal/metrics"
	"portico.dev/internal/request"
	"portico.dev/internal/store"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// A read that waits for a version leaves a timer for three seconds.
		goleak.IgnoreAnyFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2"))
}

var admin = &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}

func somebody(name string, groups ...string) user.Info {
	return &user.DefaultInfo{Name: name, Groups: append(groups, user.AllAuthenticated)}
}

var anonymous = &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}

const patience = time.Minute

// testEnv contains the local groups with a separate store, and a client.
type testEnv struct {
	*coreapi.Server
	client kubernetes.Interface
	seen   *prometheus.Registry // metrics of package fairness, in addition to k8s.io/apiserver's
}

func newTestEnv(t testing.TB) *testEnv {
	t.Helper()
	s, err := store.New(store.Config{DataDir: t.TempDir(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	runUntilEnd(t, s.Run, s.Ready())
	anything := authorizerfactory.NewAlwaysAllowAuthorizer()
	core, err := coreapi.New(coreapi.Config{Store: s, Authorizer: anything, RuleResolver: anything, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	runUntilEnd(t, core.Run, core.Ready())
	client, err := kubernetes.NewForConfig(core.ClientConfig(admin))
	if err != nil {
		t.Fatal(err)
	}
	return &testEnv{core, client, prometheus.NewRegistry()}
}

// Two levels for tests. Each has one seat that it neither lends nor extends. Users in a group with the name of a level belong to it.
const (
	queueing = "queueing"
	refusing = "refusing"
)

// fair runs fairness until the test ends and waits until the stored objects are in effect.
func (w *testEnv) fair(t testing.TB, seats int) *fairness.Fairness {
	t.Helper()
	f, err := fairness.New(fairness.Config{Client: w.client, Seats: seats, Metrics: metrics.NewFairness(w.seen)})
	if err != nil {
		t.Fatal(err)
	}
	runUntilEnd(t, f.Run, f.Ready())
	w.level(t, queueing, flowcontrolv1.LimitResponse{
		Type:    flowcontrolv1.LimitResponseTypeQueue,
		Queuing: &flowcontrolv1.QueuingConfiguration{Queues: 64, HandSize: 4, QueueLengthLimit: 50},
	})
	w.level(t, refusing, flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject})
	for level, who := range map[string]user.Info{queueing: somebody("a", queueing), refusing: somebody("a", refusing), "global-default": somebody("a")} {
		eventually(t, "the level "+level+" is in use", func() bool {
			turn := enter(context.Background(), f, who, pods)
			turn.Release()
			return turn.Level.Name == level
		})
	}
	return f
}

func (w *testEnv) level(t testing.TB, name string, response flowcontrolv1.LimitResponse) {
	t.Helper()
	api := w.client.FlowcontrolV1()
	level := limited(name, 1)
	level.Spec.Limited.LimitResponse = response
	if _, err := api.PriorityLevelConfigurations().Create(t.Context(), level, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := api.FlowSchemas().Create(t.Context(), &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: name}, MatchingPrecedence: 100,
			DistinguisherMethod: &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: name}}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, Namespaces: []string{"*"}, ClusterScope: true,
				}},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
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
	case err := <-ended:
		ended <- err
		t.Fatalf("Run ended before it was ready: %v, want it to run", err)
	case <-time.After(patience):
		t.Fatalf("fairness is not ready within %s, want it ready", patience)
	}
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("condition %q is still false after %s, want true", what, patience)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// asked returns a request in the form in which the handler chain passes it to fairness.
func asked(ctx context.Context, who user.Info, target string) (*http.Request, *apirequest.RequestInfo) {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	info, err := request.NewResolver().Info(r)
	if err != nil {
		panic(err)
	}
	return r.WithContext(apirequest.WithUser(apirequest.WithRequestInfo(r.Context(), info), who)), info
}

func enter(ctx context.Context, f *fairness.Fairness, who user.Info, target string) *fairness.Reservation {
	r, info := asked(ctx, who, target)
	return f.Reserve(r, info, who)
}

// gauge sums one of the metrics of a priority level, of package fairness or of k8s.io/apiserver.
func (w *testEnv) gauge(t testing.TB, name, level string) (sum float64) {
	t.Helper()
	for _, from := range []prometheus.Gatherer{legacyregistry.DefaultGatherer, w.seen} {
		families, err := from.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			if family.GetName() != name {
				continue
			}
			for _, m := range family.GetMetric() {
				for _, label := range m.GetLabel() {
					if label.GetName() == "priority_level" && label.GetValue() == level {
						sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
					}
				}
			}
		}
	}
	return sum
}
