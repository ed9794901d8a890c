package garbage

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// env is a running collector over a model, in a bubble with its fake clock.
type env struct {
	*model
	discovery atomic.Pointer[Discovery]
	leads     atomic.Bool
	events    chan *corev1.Event
	hidden    *model // objects that an extension server hides
}

// withCollector runs story with a running collector. Waiting is free: the clock of the bubble moves when all goroutines wait.
func withCollector(t *testing.T, furnish func(*env), story func(t *testing.T, h *env)) {
	synctest.Test(t, func(t *testing.T) {
		h := &env{model: newModel(), events: make(chan *corev1.Event, 100)}
		h.discovery.Store(healthy())
		h.leads.Store(true)
		if furnish != nil {
			furnish(h)
		}
		cfg := configOver(h.model, h.discovery.Load)
		cfg.Events = eventRecorder{written: h.events}
		if h.hidden != nil {
			cfg.Hidden = h.hidden
		}
		cfg.Leads = func() (bool, <-chan struct{}) { return h.leads.Load(), nil }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- New(cfg).Run(ctx) }()
		<-time.After(10 * time.Second)
		story(t, h)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(h.wrong) > 0 {
			t.Errorf("wrongful deletions = %v, want none", h.wrong)
		}
	})
}

func after(d time.Duration) { <-time.After(d) }

func TestUnreadableOwnerIsNotTreatedAsDeleted(t *testing.T) {
	gone := metav1.OwnerReference{APIVersion: "shop.example.com/v1", Kind: "Widget", Name: "w", UID: "gone"}
	at := widgets.GroupVersion()
	for name, wrong := range map[string]func(*env){
		"its backend answers 503":            func(h *env) { h.faults = map[schema.GroupVersion]fault{at: unavailable} },
		"its backend hangs":                  func(h *env) { h.faults = map[schema.GroupVersion]fault{at: hangs} },
		"its backend knows no path":          func(h *env) { h.faults = map[schema.GroupVersion]fault{at: knowsNoPath} },
		"its backend answers something else": func(h *env) { h.faults = map[schema.GroupVersion]fault{at: another} },
		"its group-version is stale":         func(h *env) { h.discovery.Store(healthy().with(at, func(g *GroupVersion) { g.Current = false })) },
		"its group-version was never known": func(h *env) {
			h.discovery.Store(healthy().with(at, func(g *GroupVersion) { g.Current, g.Known, g.Resources = false, false, nil }))
		},
		"its kind is not served": func(h *env) { h.discovery.Store(healthy().with(at, func(g *GroupVersion) { g.Resources = nil })) },
		"its group-version is not registered": func(h *env) {
			d := healthy()
			d.GroupVersions = slices.DeleteFunc(d.GroupVersions, func(g GroupVersion) bool { return g.GroupVersion == at })
			h.discovery.Store(d)
		},
		"discovery is not complete": func(h *env) {
			d := healthy()
			d.Synced = false
			h.discovery.Store(d)
		},
		"discovery is not there yet": func(h *env) { h.discovery.Store(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			withCollector(t, func(h *env) {
				h.create(configMaps, "red", "orphan", gone)
				wrong(h)
			}, func(t *testing.T, h *env) {
				after(10 * time.Minute)
				if !h.has(configMaps, "red", "orphan") {
					t.Fatal("the object was deleted although its owner is not known to be gone, want it kept")
				}
				h.reset(nil, nil)
				h.discovery.Store(healthy())
				after(3 * time.Minute)
				if h.has(configMaps, "red", "orphan") {
					t.Error("the object still exists after its owner's backend recovered, want it collected")
				}
			})
		})
	}
}

func TestLocalDependentIsDeletedWhileBackendsHang(t *testing.T) {
	withCollector(t, func(h *env) {
		h.faults = map[schema.GroupVersion]fault{widgets.GroupVersion(): hangs, gadgets.GroupVersion(): hangs}
		for i := range 500 { // all of them wait for a backend that does not answer
			h.create(configMaps, "red", fmt.Sprintf("waits%d", i), metav1.OwnerReference{APIVersion: "shop.example.com/v1", Kind: "Widget", Name: "w", UID: "w"})
		}
	}, func(t *testing.T, h *env) {
		owner := h.create(configMaps, "red", "owner")
		h.create(configMaps, "red", "dependent", refTo(configMaps, owner))
		after(time.Second)
		h.delete(configMaps, "red", "owner", metav1.DeletePropagationBackground)
		after(100 * time.Millisecond)
		if h.has(configMaps, "red", "dependent") {
			t.Error("the dependent exists 100ms after its owner was deleted, want it deleted without waiting for the hung backends")
		}
		h.mu.Lock()
		before := h.requests["get"]
		h.mu.Unlock()
		after(10 * time.Minute)
		h.mu.Lock()
		defer h.mu.Unlock()
		if asked := h.requests["get"] - before; asked > 2000 {
			t.Errorf("%d GET requests in ten minutes for owners on hung backends, want at most 2000", asked)
		}
	})
}

func TestInvalidOwnerReferencesAreReported(t *testing.T) {
	withCollector(t, nil, func(t *testing.T, h *env) {
		elsewhere := h.create(configMaps, "blue", "elsewhere")
		h.create(configMaps, "red", "abroad", refTo(configMaps, elsewhere))
		h.create(nodes, "", "cluster", refTo(configMaps, elsewhere))
		misnamed := refTo(configMaps, elsewhere)
		misnamed.Name = "other"
		h.create(configMaps, "blue", "misnamed", misnamed)
		after(time.Minute)
		told := map[string]string{}
		for len(h.events) > 0 {
			e := <-h.events
			if e.Reason != "OwnerRefInvalidNamespace" || e.Type != corev1.EventTypeWarning {
				t.Errorf("Event %s %s, want Warning OwnerRefInvalidNamespace", e.Type, e.Reason)
			}
			told[e.InvolvedObject.Kind+" "+e.InvolvedObject.Name] = e.Message
		}
		want := fmt.Sprintf(`ownerRef [v1/ConfigMap, namespace: red, name: elsewhere, uid: %s] does not exist in namespace "red"`, elsewhere.UID)
		if got := told["ConfigMap abroad"]; got != want {
			t.Errorf("message of the Event = %s, want %s", got, want)
		}
		if len(told) != 2 { // the misnamed reference leads to no Event, because its owner is known by its UID
			t.Errorf("Events = %v, want one for each of two objects", told)
		}
		for _, o := range []struct {
			at              schema.GroupVersionResource
			namespace, name string
		}{{configMaps, "red", "abroad"}, {nodes, "", "cluster"}, {configMaps, "blue", "misnamed"}} {
			if !h.has(o.at, o.namespace, o.name) {
				t.Errorf("%s was deleted because of a wrong reference, want it kept", o.name)
			}
		}
	})
}

func TestOwnershipCycleIsDeletedInForeground(t *testing.T) {
	withCollector(t, nil, func(t *testing.T, h *env) {
		a := h.create(configMaps, "red", "a")
		b := h.create(configMaps, "red", "b", refTo(configMaps, a))
		h.mu.Lock()
		h.objects[configMaps]["red/a"].OwnerReferences = []metav1.OwnerReference{refTo(configMaps, b)}
		h.event("MODIFIED", configMaps, h.objects[configMaps]["red/a"])
		h.mu.Unlock()
		after(5 * time.Second)
		h.delete(configMaps, "red", "a", metav1.DeletePropagationForeground)
		after(time.Minute)
		if h.has(configMaps, "red", "a") || h.has(configMaps, "red", "b") {
			t.Errorf("objects that own each other: a exists %t, b exists %t, want both deleted", h.has(configMaps, "red", "a"), h.has(configMaps, "red", "b"))
		}
	})
}

func TestOrphaningWaitsForDeadBackend(t *testing.T) {
	withCollector(t, func(h *env) {
		h.faults = map[schema.GroupVersion]fault{widgets.GroupVersion(): unavailable}
		h.discovery.Store(healthy().with(widgets.GroupVersion(), func(g *GroupVersion) { g.Current = false }))
	}, func(t *testing.T, h *env) {
		owner := h.create(configMaps, "red", "owner")
		h.create(widgets, "red", "kept", refTo(configMaps, owner))
		h.delete(configMaps, "red", "owner", metav1.DeletePropagationOrphan)
		after(time.Minute)
		if !h.has(configMaps, "red", "owner") {
			t.Fatal("the owner was deleted before its dependents were orphaned, want it kept")
		}
		if e := <-h.events; e.Reason != "OrphanWaits" || e.InvolvedObject.Name != "owner" {
			t.Errorf("Event = %v, want OrphanWaits for owner", e)
		}
		h.reset(nil, nil)
		h.discovery.Store(healthy())
		after(time.Minute)
		if h.has(configMaps, "red", "owner") {
			t.Error("the owner exists a minute after the backend recovered, want it deleted")
		}
		if kept := h.read(widgets, "red", "kept"); kept == nil || len(kept.OwnerReferences) > 0 {
			t.Errorf("dependent = %v, want it to exist without an owner", kept)
		}
	})
}

func TestOrphaningIgnoresUnlistableResources(t *testing.T) {
	noList := func(_ context.Context, verb string, at schema.GroupVersionResource, _ string) (*metav1.PartialObjectMetadata, error, bool) {
		return nil, apierrors.NewMethodNotSupported(at.GroupResource(), verb), verb == "list"
	}
	withCollector(t, func(h *env) { h.faults = map[schema.GroupVersion]fault{widgets.GroupVersion(): noList} }, func(t *testing.T, h *env) {
		h.create(configMaps, "red", "owner")
		h.delete(configMaps, "red", "owner", metav1.DeletePropagationOrphan)
		after(time.Minute)
		if h.has(configMaps, "red", "owner") {
			t.Error("the owner exists after a minute, want it deleted although LIST of widgets is answered 405")
		}
	})
}

func TestDependentKeepsReferencesToLiveOwners(t *testing.T) {
	withCollector(t, nil, func(t *testing.T, h *env) {
		one, two := h.create(boats, "red", "one"), h.create(widgets, "red", "two")
		h.create(configMaps, "red", "both", refTo(boats, one), refTo(widgets, two))
		after(5 * time.Second)
		h.delete(widgets, "red", "two", metav1.DeletePropagationBackground)
		after(30 * time.Second)
		both := h.read(configMaps, "red", "both")
		if both == nil || len(both.OwnerReferences) != 1 || both.OwnerReferences[0].UID != one.UID {
			t.Errorf("object = %v, want one owner reference, to %s", both, one.UID)
		}
	})
}

func TestOnlyLeaderCollects(t *testing.T) {
	withCollector(t, func(h *env) { h.leads.Store(false) }, func(t *testing.T, h *env) {
		owner := h.create(configMaps, "red", "owner")
		h.create(configMaps, "red", "dependent", refTo(configMaps, owner))
		h.delete(configMaps, "red", "owner", metav1.DeletePropagationBackground)
		after(time.Minute)
		if !h.has(configMaps, "red", "dependent") || len(h.requests) > 0 {
			t.Fatalf("requests of a replica that does not lead = %v, want none and the dependent kept", h.requests)
		}
		h.leads.Store(true)
		after(10 * time.Second)
		if h.has(configMaps, "red", "dependent") {
			t.Error("the dependent exists 10s after the replica became leader, want it collected")
		}
		h.leads.Store(false)
		after(5 * time.Second)
		second := h.create(configMaps, "red", "second")
		h.create(configMaps, "red", "late", refTo(configMaps, second))
		h.delete(configMaps, "red", "second", metav1.DeletePropagationBackground)
		after(time.Minute)
		if !h.has(configMaps, "red", "late") {
			t.Error("the dependent was collected after the replica lost its lease, want it kept")
		}
	})
}

func TestDependentIsDeletedAfterRemovalOfOwnerKind(t *testing.T) {
	withCollector(t, nil, func(t *testing.T, h *env) {
		boat := h.create(boats, "red", "boat")
		h.create(configMaps, "red", "rudder", refTo(boats, boat))
		after(5 * time.Second)
		h.faults = map[schema.GroupVersion]fault{boats.GroupVersion(): knowsNoPath}
		h.delete(boats, "red", "boat", metav1.DeletePropagationBackground)
		synctest.Wait() // the watch has reported the deletion, no owner could be read, and then the kind is gone
		without := healthy()
		without.GroupVersions = slices.DeleteFunc(without.GroupVersions, func(g GroupVersion) bool { return g.GroupVersion == boats.GroupVersion() })
		h.discovery.Store(without)
		after(time.Minute)
		if h.has(configMaps, "red", "rudder") {
			t.Error("the dependent exists a minute after its owner's deletion was seen, want it deleted")
		}
	})
}

// Fifty thousand objects, half of them garbage, pass through the whole collector.
func TestFiftyThousandObjectsAreCollected(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const pairs = 25_000
	withCollector(t, func(h *env) {
		for i := range pairs {
			owner := h.create(configMaps, "red", fmt.Sprintf("owner%d", i))
			h.create(boats, "red", fmt.Sprintf("dependent%d", i), refTo(configMaps, owner))
			if i%2 == 0 {
				h.delete(configMaps, "red", owner.Name, metav1.DeletePropagationBackground)
			}
		}
	}, func(t *testing.T, h *env) {
		after(2 * time.Minute)
		if left := len(h.all()); left != pairs {
			t.Errorf("%d objects are left, want %d", left, pairs)
		}
		if len(h.deleted) != pairs/2 {
			t.Errorf("%d objects were collected, want %d", len(h.deleted), pairs/2)
		}
	})
}
