package apiservice

import (
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/transport"
)

// orphanedAt reports whether an entry has the condition Orphaned at a time.
func orphanedAt(e *entry, now time.Time) bool {
	_, ok := findCondition(extraConditions(&e.object.Spec, e.input, now), orphaned)
	return ok
}

func TestAPIServiceWithoutServiceBecomesOrphan(t *testing.T) {
	object := func(service string) *apiregistrationv1.APIService {
		return &apiregistrationv1.APIService{Spec: apiregistrationv1.APIServiceSpec{Service: &apiregistrationv1.ServiceReference{Namespace: "test", Name: service}}}
	}
	missing, there := verdictInput{problem: falseProblem(reasonServiceNotFound, "")}, verdictInput{problem: falseProblem("MissingEndpoints", "")}
	start := time.Unix(1000, 0)
	e := &entry{object: object("server"), input: missing}
	e.recordAbsence(nil, start)
	if orphanedAt(e, start.Add(orphanAfter-1)) {
		t.Errorf("the APIService is an orphan before %v, want an orphan only afterwards", orphanAfter)
	}
	if got := e.input.untilTimeMatters(start.Add(time.Minute)); got != orphanAfter-time.Minute {
		t.Errorf("untilTimeMatters() = %v, want %v", got, orphanAfter-time.Minute)
	}
	e.input = missing
	e.recordAbsence(e.object, start.Add(5*time.Minute))
	if !orphanedAt(e, start.Add(orphanAfter)) {
		t.Errorf("the APIService is not an orphan after %v, want an orphan", orphanAfter)
	}
	if got := e.input.untilTimeMatters(start.Add(orphanAfter)); got != 0 {
		t.Errorf("untilTimeMatters() of an orphan = %v, want 0", got)
	}

	e.input = there
	e.recordAbsence(e.object, start.Add(orphanAfter))
	if orphanedAt(e, start.Add(time.Hour)) {
		t.Error("the APIService is an orphan after its Service returned, want none")
	}
	e.input = missing
	e.recordAbsence(e.object, start.Add(time.Hour))
	if orphanedAt(e, start.Add(time.Hour+orphanAfter-1)) {
		t.Errorf("the APIService is an orphan %v after the second absence began, want the first absence not to count", orphanAfter-1)
	}

	before := e.object
	e.object, e.input = object("other"), missing
	e.recordAbsence(before, start.Add(2*time.Hour))
	if orphanedAt(e, start.Add(2*time.Hour)) {
		t.Error("the APIService is an orphan right after it names another Service, want the absence to start anew")
	}
}

func TestOrphanStateSurvivesRestart(t *testing.T) {
	e := &entry{input: verdictInput{problem: falseProblem(reasonServiceNotFound, "")}, object: &apiregistrationv1.APIService{
		Spec: apiregistrationv1.APIServiceSpec{Service: &apiregistrationv1.ServiceReference{Namespace: "test", Name: "server"}},
		Status: apiregistrationv1.APIServiceStatus{Conditions: []apiregistrationv1.APIServiceCondition{
			{Type: orphaned, Status: apiregistrationv1.ConditionTrue},
		}},
	}}
	now := time.Unix(1000, 0)
	e.recordAbsence(nil, now)
	if !orphanedAt(e, now) {
		t.Error("the APIService is not an orphan after a restart, want the stored condition to count")
	}
}

func TestCertificateIsCheckedWhenItsLastWeekBegins(t *testing.T) {
	now := time.Unix(1000, 0)
	e := verdictInput{probes: history{}.record(outcome{at: now, certificateExpires: now.Add(expiryWarning + time.Hour)})}
	if got := e.untilTimeMatters(now); got != time.Hour {
		t.Errorf("untilTimeMatters() = %v, want 1h0m0s", got)
	}
}

// fakeDebts is the cleanup debt of one APIService.
type fakeDebts struct {
	mu      sync.Mutex // guards text and changed
	text    string
	changed chan struct{}
}

func (b *fakeDebts) Message(apiService string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if apiService == "v1.example.com" {
		return b.text
	}
	return ""
}

func (b *fakeDebts) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

func (b *fakeDebts) say(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = text
	close(b.changed)
	b.changed = make(chan struct{})
}

// A backend with debts is up but not available, because clients must not see the leftover objects.
func TestCleanupDebtsKeepBackendUnavailable(t *testing.T) {
	debts := &fakeDebts{text: "paying: objects of namespace a", changed: make(chan struct{})}
	h := newEnv(t, nil, func(_ *env, cfg *Config, _ *transport.Options) { cfg.Debts = debts })
	b := h.serve("server")
	h.add(external("server"))
	h.add(h.remote("example.com", "v1", "server", b.port()))
	h.add(h.remote("other.example.com", "v1", "server", b.port()))
	defer h.run()()
	h.is("v1.example.com", "False", CleanupDebt)
	h.is("v1.other.example.com", "True", reasonPassed)
	route, _ := h.Table().Lookup(schema.GroupVersion{Group: "example.com", Version: "v1"})
	if route.Available() || route.Backend == nil || !strings.Contains(route.Condition.Message, "namespace a") {
		t.Errorf("route = %+v, want a backend that is unavailable because of namespace a", route)
	}
	debts.say("")
	h.is("v1.example.com", "True", reasonPassed)
	debts.say("paying: objects of namespace b")
	h.is("v1.example.com", "False", CleanupDebt)
}

// A debt that is paid while its APIService is entering the table does not keep the APIService unavailable.
func TestDebtPaidDuringVerdictMakesAPIServiceAvailable(t *testing.T) {
	const name = "v1.example.com"
	debts := &fakeDebts{changed: make(chan struct{})}
	h := newEnv(t, nil, func(_ *env, cfg *Config, _ *transport.Options) { cfg.Debts = debts })
	b := h.serve("server")
	h.add(external("server"))
	h.run()
	<-h.Ready()
	debts.say("paying: objects of namespace a") // no APIService in the table has this debt yet
	h.add(h.remote("example.com", "v1", "server", b.port()))
	h.is(name, "False", CleanupDebt)
	debts.say("")
	h.is(name, "True", reasonPassed)
}

// ProbeSoon probes a backend before its next turn in the rounds.
func TestProbeSoonProbesBeforeNextRound(t *testing.T) {
	t.Parallel()
	h := newEnv(t, []runtime.Object{external("server")})
	b := h.serve("server")
	h.add(h.remote("example.com", "v1", "server", b.port()))
	defer h.run()()
	h.is("v1.example.com", "True", reasonPassed)
	route, _ := h.Table().Lookup(schema.GroupVersion{Group: "example.com", Version: "v1"})
	m, ok := h.monitors.lookup(route.Backend)
	if !ok {
		t.Fatal("lookup of the monitor of the route's backend = false, want a monitor")
	}
	h.ProbeSoon("v1.nobody.example.com")
	before := m.history(route.GroupVersion).last.at
	eventually(t, "probed again", func() bool {
		h.ProbeSoon("v1.example.com")
		return m.history(route.GroupVersion).last.at.After(before)
	})
}
