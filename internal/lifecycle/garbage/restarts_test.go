package garbage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/metrics"
)

// always is an election that this replica always wins.
func always() (bool, <-chan struct{}) { return true, nil }

func configOver(m *model, discovery func() *Discovery) Config {
	return Config{
		Client: m, Discovery: discovery, Leads: always, Events: eventRecorder{},
		Metrics: metrics.NewGarbage(prometheus.NewRegistry()), Logger: zap.NewNop(),
	}
}

// simulation runs one life of the front door after another over the same objects, each with different faults.
type simulation struct {
	*rand.Rand
	*model
	rules rules
	born  int
}

var backends = []schema.GroupVersion{widgets.GroupVersion(), gadgets.GroupVersion()}

// misfortune chooses the faults of one life: of the backends, of discovery, and their duration.
func (l *simulation) misfortune() (first, then *Discovery) {
	first, then = healthy(), healthy()
	faults, cuts := map[schema.GroupVersion]fault{}, map[schema.GroupVersion]time.Time{}
	defer func() { l.reset(faults, cuts) }()
	first.Synced = l.IntN(3) > 0
	for _, gv := range backends {
		switch l.IntN(8) {
		case 0:
			faults[gv] = unavailable
		case 1:
			faults[gv] = hangs
		case 2:
			faults[gv] = knowsNoPath
		case 3:
			faults[gv] = another
		case 4:
			restart := time.Now().Add(time.Duration(l.IntN(12)) * time.Second)
			cuts[gv], faults[gv] = restart, forgetful(restart, restart.Add(time.Duration(1+l.IntN(4))*time.Second))
		case 5:
			faults[gv] = flaky(rand.New(rand.NewPCG(l.Uint64(), 0)))
		}
		if faults[gv] == nil {
			continue
		}
		// Discovery lags behind: it may still report a dead backend as Current, or already report a backend as dead.
		switch l.IntN(4) {
		case 0:
			then = then.with(gv, func(g *GroupVersion) { g.Current, g.Reason = false, "FailedDiscoveryCheck" })
		case 1:
			first = first.with(gv, func(g *GroupVersion) { g.Current, g.Known, g.Resources = false, false, nil })
		case 2:
			first.GroupVersions = slices.DeleteFunc(first.GroupVersions, func(g GroupVersion) bool { return g.GroupVersion == gv })
		}
	}
	return first, then
}

// happen creates and deletes objects as users do.
func (l *simulation) happen() {
	all := l.all()
	for range 4 {
		at := []schema.GroupVersionResource{configMaps, nodes, boats, widgets, gadgets}[l.IntN(5)]
		namespace := []string{"red", "blue"}[l.IntN(2)]
		if clusterScoped(at) {
			namespace = ""
		}
		var owners []metav1.OwnerReference
		for range l.IntN(3) {
			if len(all) > 0 {
				owner := all[l.IntN(len(all))] // any object in any namespace: references may be wrong
				owners = append(owners, refTo(owner.at, owner.PartialObjectMetadata))
			}
		}
		l.born++
		l.create(at, namespace, fmt.Sprintf("o%d", l.born), owners...)
	}
	policies := []metav1.DeletionPropagation{
		metav1.DeletePropagationBackground, metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
	}
	for range 1 + len(all)/20 {
		if len(all) > 0 {
			o := all[l.IntN(len(all))]
			l.delete(o.at, o.Namespace, o.Name, policies[l.IntN(len(policies))])
		}
	}
}

// live runs a fresh collector for a while.
func (l *simulation) live(t *testing.T, d time.Duration, lucky bool) {
	synctest.Test(t, func(t *testing.T) {
		first, then := healthy(), healthy()
		if lucky {
			l.reset(nil, nil)
		} else {
			first, then = l.misfortune()
		}
		var discovery atomic.Pointer[Discovery]
		discovery.Store(first)
		l.shown = discovery.Load
		c := New(configOver(l.model, discovery.Load))
		c.rules = l.rules
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		<-time.After(3 * time.Second)
		if !lucky {
			l.happen()
		}
		// Not at a whole second: a finalizer that is removed at the moment of a registration was removed before it, but the
		// model would read discovery after it.
		<-time.After(time.Duration(l.IntN(8))*time.Second + 137129*time.Microsecond)
		discovery.Store(then)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func newSimulation(seed uint64, r rules) *simulation {
	return &simulation{Rand: rand.New(rand.NewPCG(seed, 5)), model: newModel(), rules: r}
}

// The scoreboard's row R11: backends and discovery fail in every way at every start, and no object with an owner is deleted.
// Objects without an owner are deleted after the faults end.
func TestThousandRestartsDeleteNoObjectWithOwner(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			l := newSimulation(seed, defaultRules())
			for range restarts / 4 {
				l.live(t, 20*time.Second, false)
			}
			l.live(t, 5*time.Minute, true)
			if len(l.wrong) > 0 {
				t.Errorf("%d wrongful deletions, want 0; the first: %s", len(l.wrong), l.wrong[0])
			}
			if left := l.garbage(); len(left) > 0 {
				t.Errorf("objects left after all faults ended = %s, want none", strings.Join(left, ", "))
			}
			if len(l.deleted) < restarts/40 {
				t.Errorf("%d objects were collected, want at least %d: otherwise nothing was tested", len(l.deleted), restarts/40)
			}
			t.Logf("%d objects lived, %d were collected, %d are left", l.born, len(l.deleted), len(l.all()))
		})
	}
}

// garbage returns the objects that should have been collected.
func (l *simulation) garbage() (left []string) {
	for _, o := range l.all() {
		owned := slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return l.alive(r.UID) })
		misplaced := slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return o.Namespace == "" && r.Kind != "Node" })
		if o.DeletionTimestamp != nil || len(o.OwnerReferences) > 0 && !owned && !misplaced {
			left = append(left, o.at.Resource+" "+o.Namespace+"/"+o.Name)
		}
	}
	return left
}

// Without each of the rules the simulation finds a wrongful deletion.
func TestSimulationDetectsEachMissingRule(t *testing.T) {
	careless := func(denies func(error) bool) rules {
		return rules{
			serves:        func(GroupVersion) bool { return true },
			isNotFound:    func(err error, _ Resource, _ string) bool { return denies(err) },
			confirmTwice:  func(GroupVersion) bool { return false },
			knownObjects:  func(*graph, ownerRef) []coordinates { return nil },
			watchComplete: func(*graph, schema.GroupResource, Resource) bool { return true },
		}
	}
	credulous, blind := defaultRules(), defaultRules()
	credulous.confirmTwice = func(GroupVersion) bool { return false }
	credulous.watchComplete = func(*graph, schema.GroupResource, Resource) bool { return true }
	blind.knownObjects = func(*graph, ownerRef) []coordinates { return nil }
	for name, r := range map[string]rules{
		"503 is an absence":                       careless(func(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) }),
		"any 404 is an absence":                   careless(apierrors.IsNotFound),
		"a backend that just started is believed": credulous,
		"an owner in another namespace is none":   blind,
	} {
		t.Run(name, func(t *testing.T) {
			l := newSimulation(1, r)
			for i := range 300 {
				l.live(t, 20*time.Second, false)
				if len(l.wrong) > 0 {
					t.Logf("caught after %d restarts: %s", i+1, l.wrong[0])
					return
				}
			}
			t.Error("no wrongful deletion in 300 restarts without a rule, want one")
		})
	}
}
