package apiservice

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/routetable"
	"portico.dev/internal/store"
	"portico.dev/internal/transport"
)

// countingAPIServices is a client that counts the writes of status of one replica.
type countingAPIServices struct {
	Client
	writes *atomic.Int64
}

func (p countingAPIServices) UpdateStatus(ctx context.Context, o *apiregistrationv1.APIService, opts metav1.UpdateOptions) (*apiregistrationv1.APIService, error) {
	p.writes.Add(1)
	return p.Client.UpdateStatus(ctx, o, opts)
}

// asPeer makes a controller one of several replicas, and counts its writes.
func asPeer(name string, peers Peers, writes *atomic.Int64) option {
	return func(h *env, cfg *Config, _ *transport.Options) {
		cfg.Peers, cfg.Replica = peers, name
		cfg.Client = countingAPIServices{h.api.ApiregistrationV1().APIServices(), writes}
		cfg.Events = h.core.CoreV1().Events(metav1.NamespaceDefault)
	}
}

// cutOffFrom keeps a replica from dialling a backend while blind is set, by treating the backend's address as one of the
// replica's addresses.
func cutOffFrom(address func() string, blind *atomic.Bool) option {
	return func(_ *env, _ *Config, o *transport.Options) {
		o.OwnAddresses = func() []string {
			if blind.Load() {
				return []string{address()}
			}
			return nil
		}
	}
}

func (h *env) standsAt(name string, kind apiregistrationv1.APIServiceConditionType, status apiregistrationv1.ConditionStatus) {
	h.t.Helper()
	eventually(h.t, string(kind)+" of "+name+" is "+string(status), func() bool { return h.written(name, kind).Status == status })
}

// routes waits until this replica's verdict is to route, or not to route.
func (h *env) routes(want bool) {
	h.t.Helper()
	eventually(h.t, "the replica's own verdict", func() bool {
		r, ok := h.Table().Lookup(gvExample)
		return ok && r.Available() == want
	})
}

func TestDisagreeingReplicasShareStatusAndRouteSeparately(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	c := newPeerGroup()
	var blind atomic.Bool
	var b *backend
	blind.Store(true)
	var writesA, writesB atomic.Int64
	seatA, seatB := c.join("replica-a"), c.join("replica-b")
	a := newEnv(t, nil, asPeer("replica-a", seatA, &writesA), cutOffFrom(func() string { return b.address.String() }, &blind))
	b = a.serve("server")
	a.add(external("server"))
	a.add(a.remote("example.com", "v1", "server", b.port()))
	other := a.another(asPeer("replica-b", seatB, &writesB))
	a.run()
	other.run()

	a.standsAt("v1.example.com", apiregistrationv1.Available, "True")
	a.standsAt("v1.example.com", AvailableOnAllReplicas, "False")
	a.routes(false)
	other.routes(true)
	eventually(t, "the blind replica is named", func() bool {
		return strings.HasSuffix(a.written("v1.example.com", AvailableOnAllReplicas).Message, ": replica-a")
	})
	eventually(t, "what others see is shown by both", func() bool { // so that both have published it
		return a.DebugState().APIServices[0].Elsewhere["replica-b"] == "True" && other.DebugState().APIServices[0].Elsewhere["replica-a"] == "False"
	})
	if !a.DebugState().WritesStatus || other.DebugState().WritesStatus {
		t.Errorf("WritesStatus = %t at the first replica and %t at the other, want true and false", a.DebugState().WritesStatus, other.DebugState().WritesStatus)
	}

	// The replicas continue to disagree without a new event.
	before, words := writesA.Load(), seatA.spoke()+seatB.spoke()
	failures := func() int { return a.DebugState().Backends[0].Probes[0].Failures }
	from := failures()
	eventually(t, "two more failures", func() bool { return failures() >= from+2 }) // the time between them doubles
	if n := writesA.Load() - before; n != 0 {
		t.Errorf("%d status writes while the replicas disagreed, want 0", n)
	}
	if n := seatA.spoke() + seatB.spoke() - words; n != 0 {
		t.Errorf("the replicas published %d new values while nothing changed, want 0", n)
	}

	blind.Store(false)
	a.standsAt("v1.example.com", AvailableOnAllReplicas, "True")
	a.routes(true)
	if n := writesB.Load(); n != 0 {
		t.Errorf("the replica that does not lead wrote %d times, want 0", n)
	}
}

func TestIdleReplicaUsesResultOfBusyReplica(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	c := newPeerGroup()
	var writesA, writesB atomic.Int64
	a := newEnv(t, nil, asPeer("replica-a", c.join("replica-a"), &writesA))
	b := a.serve("server")
	a.add(external("server"))
	a.add(a.remote("example.com", "v1", "server", b.port()))
	// The other replica does not see lost connections: only backendFailed leads to a probe outside the rounds.
	other := a.another(asPeer("replica-b", c.join("replica-b"), &writesB))
	a.run()
	other.run()
	a.standsAt("v1.example.com", AvailableOnAllReplicas, "True")

	start := time.Now() // taken before stop: a round of probes can notice it while stop waits
	b.stop()
	r, _ := a.Table().Lookup(gvExample)
	a.backendFailed(r.Backend)
	a.standsAt("v1.example.com", apiregistrationv1.Available, "False")
	other.routes(false)
	if took := time.Since(start); took < debounceTime-50*time.Millisecond {
		t.Errorf("unavailability was written after %v, want at least %v", took, debounceTime-50*time.Millisecond)
	}
	b.start()
	a.standsAt("v1.example.com", apiregistrationv1.Available, "True")
	a.standsAt("v1.example.com", AvailableOnAllReplicas, "True")
	eventually(t, "events of going and returning", func() bool {
		list, err := a.core.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		reasons := make(map[string]string)
		for _, e := range list.Items {
			if e.InvolvedObject.Name == "v1.example.com" && e.InvolvedObject.UID == a.get("v1.example.com").UID {
				reasons[e.Reason] = e.Type
			}
		}
		return len(list.Items) == 2 && reasons[backendUnavailable] == corev1.EventTypeWarning && reasons[backendAvailable] == corev1.EventTypeNormal
	})
}

// TestReplicasOverEtcd covers leases, election and handover.
func TestReplicasOverEtcd(t *testing.T) {
	t.Parallel()
	s, err := store.New(store.Config{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	stopStore := background(t, s.Run)
	defer stopStore()
	<-s.Ready()
	join := func(name string) (*store.Replicas, func()) {
		r := s.Replicas(name)
		stop := background(t, r.Run)
		<-r.Ready()
		return r, stop
	}
	peersA, leaveA := join("replica-a")
	peersB, leaveB := join("replica-b")
	defer leaveA()
	defer leaveB()

	var writesA, writesB atomic.Int64
	a := newEnv(t, nil, asPeer("replica-a", peersA.Section(store.VerdictSection), &writesA))
	b := a.serve("server")
	a.add(external("server"))
	a.add(a.remote("example.com", "v1", "server", b.port()))
	other := a.another(asPeer("replica-b", peersB.Section(store.VerdictSection), &writesB))
	stopA := a.run()
	stopB := other.run()
	defer stopB()
	a.standsAt("v1.example.com", apiregistrationv1.Available, "True")
	a.standsAt("v1.example.com", AvailableOnAllReplicas, "True")
	if n := writesB.Load(); n != 0 {
		t.Errorf("the replica that does not lead wrote %d times, want 0", n)
	}

	// The first replica ends, and the second one writes from now on, without delay because it is alone.
	stopA()
	leaveA()
	eventually(t, "the other replica leads", func() bool { return other.DebugState().WritesStatus })
	before := writesA.Load()
	for try := 1; ; try++ { // on a busy machine a single try can be slow; waiting for other replicas is slow in each try
		b.stop()
		start := time.Now()
		r, _ := other.Table().Lookup(gvExample)
		other.backendFailed(r.Backend)
		other.is("v1.example.com", "False", "FailedDiscoveryCheck")
		took := time.Since(start)
		if took <= debounceTime {
			break
		}
		if try == 5 {
			t.Errorf("one replica wrote the unavailability after %v in the fifth try, want at most %v", took, debounceTime)
			break
		}
		b.start()
		other.standsAt("v1.example.com", apiregistrationv1.Available, "True")
	}
	if writesA.Load() != before || writesB.Load() == 0 {
		t.Errorf("%d writes of the first replica after its end and %d of the second, want 0 and more than 0", writesA.Load()-before, writesB.Load())
	}
	if c := other.written("v1.example.com", AvailableOnAllReplicas); c.Status != "False" || c.Reason != "NoReplica" {
		t.Errorf("condition AvailableOnAllReplicas = %+v, want False with reason NoReplica", c)
	}
}

// background runs a function until stop is called.
func background(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stopped := false
	return func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestBackendLimitIsSmallestOfItsAPIServices(t *testing.T) {
	h := newEnv(t, nil)
	b := h.serve("server")
	h.add(external("server"))
	annotated := func(version, limit string) *apiregistrationv1.APIService {
		o := h.remote("example.com", version, "server", b.port())
		o.Annotations = map[string]string{routetable.MaxInFlightAnnotation: limit}
		return o
	}
	h.add(h.remote("example.com", "v1", "server", b.port()))
	h.add(annotated("v2", "2"))
	h.add(annotated("v3", "5"))
	h.add(annotated("v4", "none at all"))
	h.run()
	h.is("v1.example.com", "True", "Passed") // the informers run already, and can receive the object after Ready
	r, _ := h.Table().Lookup(gvExample)
	admitted := func() int {
		n := 0
		var places [10]transport.Slot
		for n < len(places) && r.Backend.Admit(&places[n], fmt.Sprint("user ", n)) == nil {
			n++
		}
		for i := range n {
			places[i].Release()
		}
		return n
	}
	eventually(t, "the smallest counts", func() bool { return admitted() == 2 })
	h.standsAt("v4.example.com", annotationsValid, "False")
	h.is("v4.example.com", "True", "Passed")

	if err := h.api.ApiregistrationV1().APIServices().Delete(t.Context(), "v2.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the next one counts", func() bool { return admitted() == 5 })
	o := h.get("v3.example.com")
	o.Annotations = nil
	if _, err := h.api.ApiregistrationV1().APIServices().Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the default counts", func() bool { return admitted() == 10 })
	o = h.get("v4.example.com")
	o.Annotations = map[string]string{routetable.LongRunningAnnotation: "console"}
	if _, err := h.api.ApiregistrationV1().APIServices().Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the complaint goes with its cause", func() bool { return h.written("v4.example.com", annotationsValid).Status == "" })
	gv := gvExample
	gv.Version = "v4"
	if r, _ := h.Table().Lookup(gv); len(r.Options.LongRunningSubresources) != 1 {
		t.Errorf("options = %+v, want 1 long-running subresource", r.Options)
	}
}

func TestUnusableOpenAPIDocumentSetsCondition(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	var trouble atomic.Pointer[string]
	say := func(text string) { trouble.Store(&text) }
	say("it claims\npaths of another group")
	h := newEnv(t, nil, func(_ *env, cfg *Config, _ *transport.Options) {
		cfg.DocumentProblem = func(name string) string {
			if name != "v1.example.com" {
				return ""
			}
			return *trouble.Load()
		}
	})
	b := h.serve("server")
	h.add(external("server"))
	h.add(h.remote("example.com", "v1", "server", b.port()))
	h.run()
	h.is("v1.example.com", "True", "Passed")
	h.standsAt("v1.example.com", openAPIValid, "False")
	if got := h.written("v1.example.com", openAPIValid).Message; got != "it claims paths of another group" {
		t.Errorf("message of condition OpenAPIValid = %q, want %q", got, "it claims paths of another group")
	}
	say("")
	eventually(t, "it goes with the trouble", func() bool { return h.written("v1.example.com", openAPIValid).Type == "" })
}
