package fairness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/eventclock"
	fctesting "k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/testing"
	fcmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	fcrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"portico.dev/internal/metrics"
)

// invented generates FlowSchemas and requests from few words, so that they often match.
type invented struct{ *rand.Rand }

func pick[T any](r invented, of ...T) T { return of[r.IntN(len(of))] }

func some(r invented, of ...string) (chosen []string) {
	if r.IntN(4) == 0 {
		return []string{"*"}
	}
	for range 1 + r.IntN(2) {
		chosen = append(chosen, pick(r, of...))
	}
	return chosen
}

func (r invented) subject() flowcontrolv1.Subject {
	switch r.IntN(3) {
	case 0:
		return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: pick(r, "*", "a", "b", "system:serviceaccount:n:a")}}
	case 1:
		return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: pick(r, "*", "g", "h", "system:authenticated")}}
	default:
		return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindServiceAccount, ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: pick(r, "n", "m", "nn"), Name: pick(r, "*", "a", "b")}}
	}
}

func (r invented) schema(name string) *flowcontrolv1.FlowSchema {
	s := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: flowcontrolv1.FlowSchemaSpec{
		PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: pick(r, "exempt", "workload-low", "workload-high", "no-such-level")},
		MatchingPrecedence:         int32(1 + r.IntN(5)),
	}}
	for range r.IntN(3) {
		rule := flowcontrolv1.PolicyRulesWithSubjects{}
		for range 1 + r.IntN(2) {
			rule.Subjects = append(rule.Subjects, r.subject())
		}
		for range r.IntN(3) {
			rule.ResourceRules = append(rule.ResourceRules, flowcontrolv1.ResourcePolicyRule{
				Verbs: some(r, "get", "list"), APIGroups: some(r, "", "apps"), Resources: some(r, "pods", "pods/log", "log", "nodes"),
				Namespaces: some(r, "n", "m"), ClusterScope: r.IntN(2) == 0,
			})
		}
		for range r.IntN(3) {
			rule.NonResourceRules = append(rule.NonResourceRules, flowcontrolv1.NonResourcePolicyRule{
				Verbs: some(r, "get", "post"), NonResourceURLs: some(r, "/", "/healthz", "/healthz/*", "/health*", "/livez/"),
			})
		}
		s.Spec.Rules = append(s.Spec.Rules, rule)
	}
	return s
}

func (r invented) request() (*apirequest.RequestInfo, user.Info) {
	who := &user.DefaultInfo{Name: pick(r, "a", "b", "c", "system:serviceaccount:n:a", "system:serviceaccount:nn:b", "system:serviceaccount:m"), Groups: some(r, "g", "h", "system:masters")}
	if r.IntN(200) > 0 { // k8s.io/apiserver logs the objects for each of the other requests.
		who.Groups = append(who.Groups, user.AllAuthenticated)
	}
	if r.IntN(3) == 0 {
		return &apirequest.RequestInfo{Verb: pick(r, "get", "post", "put"), Path: pick(r, "/", "/healthz", "/healthz/", "/healthz/a/b", "/healthzz", "/health", "/livez", "/livez/x", "/x")}, who
	}
	return &apirequest.RequestInfo{
		IsResourceRequest: true, Verb: pick(r, "get", "list", "watch"), APIGroup: pick(r, "", "apps", "x"), Namespace: pick(r, "", "n", "m", "o"),
		Resource: pick(r, "pods", "nodes"), Subresource: pick(r, "", "", "log", "status"),
	}, who
}

// Classification equals k8s.io/apiserver's for all objects and requests.
func TestClassificationMatchesAPIServer(t *testing.T) {
	fcmetrics.Register()
	matched := map[string]bool{}
	for seed := range uint64(20) {
		r := invented{rand.New(rand.NewPCG(seed, 2))}
		var objects []runtime.Object
		for _, l := range bootstrap.SuggestedPriorityLevelConfigurations {
			objects = append(objects, l)
		}
		for i := range r.IntN(8) {
			objects = append(objects, r.schema(fmt.Sprint("schema-", i)))
		}
		if r.IntN(2) == 0 {
			objects = append(objects, bootstrap.MandatoryFlowSchemaCatchAll, bootstrap.MandatoryPriorityLevelConfigurationCatchAll)
		}
		objects = append(objects, probe)
		theirs, ours := bothEngines(t, fake.NewClientset(objects...))
		for range 500 {
			info, who := r.request()
			schema, level := takenFor(theirs, info, who)
			found := classify(*ours.snapshot.Load(), who, info)
			if found.object.Name != schema || found.levelObject.Name != level || found.level.name != level {
				t.Fatalf("seed %d: classify(%+v, %+v) = %s at %s, want %s at %s as in k8s.io/apiserver", seed, info, who, found.object.Name, found.levelObject.Name, schema, level)
			}
			matched[schema] = true
		}
	}
	if len(matched) < 8 {
		t.Errorf("matched schemas = %v, want at least 8", matched)
	}
}

func takenFor(c flowcontrol.Interface, info *apirequest.RequestInfo, who user.Info) (schema, level string) {
	c.Handle(context.Background(), flowcontrol.RequestDigest{RequestInfo: info, User: who},
		func(s *flowcontrolv1.FlowSchema, l *flowcontrolv1.PriorityLevelConfiguration, _ string) {
			schema, level = s.Name, l.Name
		},
		func() fcrequest.WorkEstimate { return fcrequest.WorkEstimate{InitialSeats: 1} }, func(bool) {}, func() {})
	return schema, level
}

// probe matches a user that no other schema matches, as soon as the stored objects are in effect.
var probe = &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: flowcontrolv1.FlowSchemaSpec{
	PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "workload-low"},
	Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
		Subjects:         []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: "probe"}}},
		NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}},
	}},
}}

// bothEngines returns k8s.io/apiserver's implementation with separate queues, and Portico's, for the same objects.
func bothEngines(t *testing.T, client *fake.Clientset) (theirs flowcontrol.Interface, ours *classifier) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	factory := informers.NewSharedInformerFactory(client, 0)
	t.Cleanup(factory.Shutdown)
	t.Cleanup(cancel)
	ours, err := newClassifier(factory.Flowcontrol().V1(), metrics.NewFairness(prometheus.NewRegistry()))
	if err != nil {
		t.Fatal(err)
	}
	config := flowcontrol.TestableConfig{
		Name: "test", Clock: eventclock.Real{}, FoundToDangling: func(found bool) bool { return !found }, InformerFactory: factory,
		FlowcontrolClient: client.FlowcontrolV1(), ServerConcurrencyLimit: 100,
		ReqsGaugeVec: fcmetrics.PriorityLevelConcurrencyGaugeVec, ExecSeatsGaugeVec: fcmetrics.PriorityLevelExecutionSeatsGaugeVec,
	}
	config.QueueSetFactory = fctesting.NewNoRestraintFactory()
	theirs = flowcontrol.NewTestable(config)
	config.QueueSetFactory = ours
	mine := flowcontrol.NewTestable(config)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for _, c := range []flowcontrol.Interface{theirs, mine} {
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx.Done()) }()
		t.Cleanup(func() {
			cancel()
			<-ended
		})
	}
	info, who := &apirequest.RequestInfo{Verb: "get", Path: "/"}, &user.DefaultInfo{Name: "probe", Groups: []string{user.AllAuthenticated}}
	for deadline := time.Now().Add(modelPatience); ; {
		schema, _ := takenFor(theirs, info, who)
		if schema == probe.Name && complete(ours) {
			return theirs, ours
		}
		if time.Now().After(deadline) {
			t.Fatal("stored objects are not in effect before the deadline, want them in effect")
		}
		<-time.After(time.Millisecond)
	}
}

// complete reports whether the snapshot of k has each FlowSchema whose level is stored. The controller creates the levels in sequence,
// so a snapshot with the probe may lack other levels.
func complete(k *classifier) bool {
	stored, _ := k.configurations.List(labels.Everything())
	levels := map[string]*flowcontrolv1.PriorityLevelConfiguration{}
	for _, l := range stored {
		levels[l.Name] = l
	}
	return len(*k.snapshot.Load()) == len(k.orderedSchemas(levels))
}
