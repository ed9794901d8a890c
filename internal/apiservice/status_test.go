package apiservice

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zaptest"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	aggregatorlisters "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"

	"portico.dev/internal/routetable"
)

// writerEnv is a statusWriter in a synctest bubble, with a store instead of an API server, and one remote APIService.
type writerEnv struct {
	t        *testing.T
	writer   *statusWriter
	store    cache.Indexer
	route    atomic.Pointer[routetable.Route]
	replicas *replicas
	writes   atomic.Int64
}

func newWriterEnv(t *testing.T, peers Peers, store cache.Indexer) *writerEnv {
	t.Helper()
	d := &writerEnv{t: t, store: store, replicas: newReplicas(peers, "own", nil, zaptest.NewLogger(t))}
	d.route.Store(routed(1, "True", reasonPassed, "all checks passed"))
	client := aggregatorfake.NewClientset()
	client.PrependReactor("update", "apiservices", func(a clienttesting.Action) (bool, runtime.Object, error) {
		d.writes.Add(1)
		o := a.(clienttesting.UpdateAction).GetObject()
		return true, o, d.store.Update(o)
	})
	d.writer = &statusWriter{
		client: client.ApiregistrationV1().APIServices(), lister: aggregatorlisters.NewAPIServiceLister(store),
		table:    func() *routetable.Table { return routetable.NewTable([]*routetable.Route{d.route.Load()}, true) },
		replicas: d.replicas, events: newEventRecorder(nil, "own", zaptest.NewLogger(t)), log: zaptest.NewLogger(t),
		messageWritten: make(map[string]time.Time),
	}
	d.writer.prepare()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.writer.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	d.sees("True", reasonPassed)
	return d
}

// indexer returns a store with the APIService of routed(1, ...).
func indexer(t *testing.T) cache.Indexer {
	t.Helper()
	r := routed(1, "True", reasonPassed, "")
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	o := &apiregistrationv1.APIService{Spec: apiregistrationv1.APIServiceSpec{Group: r.GroupVersion.Group, Version: "v1", Service: r.Service}}
	o.Name, o.UID = r.Name, r.UID
	if err := store.Add(o); err != nil {
		t.Fatal(err)
	}
	return store
}

// sees sets a new verdict of this replica.
func (d *writerEnv) sees(status, reason string) {
	message := "why"
	if status == "True" {
		message = "all checks passed"
	}
	d.route.Store(routed(1, status, reason, message))
	d.listen()
}

// listen updates the state as the controller does after another replica publishes.
func (d *writerEnv) listen() {
	if d.replicas.peers != nil {
		d.replicas.update()
	}
	d.writer.queue.Add("v1.g1.io")
	synctest.Wait()
}

func (d *writerEnv) stands(t apiregistrationv1.APIServiceConditionType) string {
	d.t.Helper()
	o, exists, err := d.store.GetByKey("v1.g1.io")
	if err != nil || !exists {
		d.t.Fatalf("GetByKey(v1.g1.io) = %v, error %v, want the APIService", exists, err)
	}
	c, _ := findCondition(o.(*apiregistrationv1.APIService).Status.Conditions, t)
	return string(c.Status)
}

// thinks publishes a verdict of another replica on the same APIService.
func (s *peer) thinks(t *testing.T, status, reason string) {
	t.Helper()
	text, err := encodeVerdicts(routetable.NewTable([]*routetable.Route{routed(1, status, reason, "why")}, true))
	if err != nil {
		t.Fatal(err)
	}
	s.Publish(text)
}

func TestSingleReplicaWritesVerdictAtOnce(t *testing.T) {
	for name, peers := range map[string]Peers{"without peers": nil, "with nobody there": newPeerGroup().join("own")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newWriterEnv(t, peers, indexer(t))
				for _, status := range []string{"False", "True", "False"} {
					d.sees(status, "A")
					if got := d.stands(apiregistrationv1.Available); got != status {
						t.Fatalf("Available right after the verdict = %s, want %s", got, status)
					}
				}
				if got := d.stands(AvailableOnAllReplicas); got != "" {
					t.Errorf("AvailableOnAllReplicas with one replica = %s, want none", got)
				}
			})
		})
	}
}

func TestUnavailableIsDebouncedWithSeveralReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPeerGroup()
		own, other := c.join("own"), c.join("other")
		other.thinks(t, "True", reasonPassed)
		d := newWriterEnv(t, own, indexer(t))
		if got := d.stands(AvailableOnAllReplicas); got != "True" {
			t.Fatalf("AvailableOnAllReplicas = %q, want True because all replicas reach it", got)
		}
		writes := d.writes.Load()

		// For a moment neither replica reaches the backend.
		d.sees("False", "A")
		other.thinks(t, "False", "A")
		d.listen()
		time.Sleep(debounceTime / 2)
		d.sees("True", reasonPassed)
		other.thinks(t, "True", reasonPassed)
		d.listen()
		time.Sleep(2 * debounceTime)
		synctest.Wait()
		if n := d.writes.Load() - writes; n != 0 {
			t.Errorf("%d status writes for a short failure, want 0", n)
		}

		// One replica loses the backend.
		d.sees("False", "A")
		time.Sleep(2 * debounceTime)
		synctest.Wait()
		if d.stands(apiregistrationv1.Available) != "True" || d.stands(AvailableOnAllReplicas) != "False" || d.writes.Load()-writes != 1 {
			t.Errorf("with one blind replica: Available = %s, AvailableOnAllReplicas = %s, %d writes, want True, False and 1", d.stands(apiregistrationv1.Available), d.stands(AvailableOnAllReplicas), d.writes.Load()-writes)
		}

		// The other follows.
		other.thinks(t, "False", "A")
		d.listen()
		time.Sleep(debounceTime - time.Millisecond)
		if got := d.stands(apiregistrationv1.Available); got != "True" {
			t.Errorf("Available before the debounce time = %s, want True", got)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if got := d.stands(apiregistrationv1.Available); got != "False" {
			t.Errorf("Available after the debounce time = %s, want False", got)
		}

		// The backend returns, which is written at once.
		other.thinks(t, "True", reasonPassed)
		d.listen()
		if got := d.stands(apiregistrationv1.Available); got != "True" {
			t.Errorf("Available right after the backend returned = %s, want True", got)
		}

		// When the replica that reaches the backend dies, only the verdict of the other one counts.
		other.die()
		d.listen()
		if d.stands(apiregistrationv1.Available) != "False" || d.stands(AvailableOnAllReplicas) != "False" {
			t.Errorf("Available = %s, AvailableOnAllReplicas = %s, want False and False", d.stands(apiregistrationv1.Available), d.stands(AvailableOnAllReplicas))
		}
	})
}

func TestOnlyLeaderWritesAndSuccessorContinuesDebounce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPeerGroup()
		leader, own := c.join("leader"), c.join("own")
		leader.thinks(t, "True", reasonPassed)
		store := indexer(t)
		d := newWriterEnv(t, own, store)
		if d.writes.Load() != 0 {
			t.Fatalf("a replica that does not lead wrote %d times, want 0", d.writes.Load())
		}
		o := standing("v1.g1.io", "True", reasonPassed)
		existing, _, _ := store.GetByKey("v1.g1.io")
		o.UID, o.Spec = existing.(*apiregistrationv1.APIService).UID, existing.(*apiregistrationv1.APIService).Spec
		third := c.join("third")
		third.thinks(t, "False", "A")
		if err := store.Update(o); err != nil {
			t.Fatal(err)
		}
		leader.thinks(t, "False", "A")
		d.sees("False", "A")
		time.Sleep(10 * debounceTime)
		synctest.Wait()
		if d.writes.Load() != 0 {
			t.Fatalf("a replica that does not lead wrote %d times, want 0", d.writes.Load())
		}
		// The leader died before it wrote. Its pending write is due at once, not after another debounce time.
		leader.die()
		d.listen()
		if got := d.stands(apiregistrationv1.Available); got != "False" {
			t.Errorf("Available after the leader died = %s, want False", got)
		}
	})
}

func TestDebouncer(t *testing.T) {
	type step struct {
		at             time.Duration
		stored, wanted string // "" for absent
		settled        string
		wait           time.Duration
	}
	for name, steps := range map[string][]step{
		"good news at once":                    {{0, "False", "True", "True", 0}},
		"the first news at once":               {{0, "", "False", "False", 0}},
		"other bad news at once":               {{0, "False", "Unknown", "Unknown", 0}},
		"bad news when they are old":           {{0, "True", "False", "True", debounceTime}, {time.Second, "True", "False", "True", debounceTime - time.Second}, {debounceTime, "True", "False", "False", 0}},
		"bad news that turn into other ones":   {{0, "True", "False", "True", debounceTime}, {debounceTime, "True", "Unknown", "Unknown", 0}},
		"a moment's bad news never":            {{0, "True", "False", "True", debounceTime}, {time.Second, "True", "True", "True", 0}, {debounceTime, "True", "False", "True", debounceTime}},
		"what was written is counted anew":     {{0, "True", "False", "True", debounceTime}, {debounceTime, "True", "False", "False", 0}, {3 * time.Second, "False", "False", "False", 0}, {4 * time.Second, "True", "False", "True", debounceTime}},
		"a write that failed is tried at once": {{0, "True", "False", "True", debounceTime}, {debounceTime, "True", "False", "False", 0}, {debounceTime + time.Second, "True", "False", "False", 0}},
	} {
		t.Run(name, func(t *testing.T) {
			var d debouncer
			for i, s := range steps {
				var stored []apiregistrationv1.APIServiceCondition
				if s.stored != "" {
					stored = append(stored, available(condition(apiregistrationv1.ConditionStatus(s.stored), "R", "stored")))
				}
				wanted := available(condition(apiregistrationv1.ConditionStatus(s.wanted), "R", "wanted"))
				got, wait := d.debounce("x", stored, []apiregistrationv1.APIServiceCondition{wanted}, time.Unix(1000, 0).Add(s.at))
				if len(got) != 1 || string(got[0].Status) != s.settled || wait != s.wait {
					t.Fatalf("step %d: debounce() = %v, %v, want %v, %v", i, got, wait, s.settled, s.wait)
				}
			}
			d.forget("x")
			if len(d.falseSince) != 0 {
				t.Errorf("falseSince after forget = %v, want empty", d.falseSince)
			}
		})
	}
}
