package garbage

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// hiding returns discovery in which the extension server of widgets hides widgets that are stored here.
func hiding() *Discovery {
	d := healthy()
	hidden := d.lookup(widgets.GroupVersion())
	hidden.Local, hidden.Hidden = true, true
	d.GroupVersions = append(slices.Clone(d.GroupVersions), hidden)
	return d
}

// withHidden runs story while widgets are hidden. The hidden model contains the widgets stored in this server.
func withHidden(t *testing.T, prepare func(h *env, hidden *model), story func(t *testing.T, h *env, hidden *model)) {
	withCollector(t, func(h *env) {
		h.hidden = newModel()
		h.hidden.version = 1000 // UIDs must differ between the models
		h.discovery.Store(hiding())
		if prepare != nil {
			prepare(h, h.hidden)
		}
	}, func(t *testing.T, h *env) { story(t, h, h.hidden) })
}

func TestHiddenObjectsAreDeletedWithTheirOwner(t *testing.T) {
	withHidden(t, nil, func(t *testing.T, h *env, hidden *model) {
		owner := h.create(configMaps, "red", "owner")
		hidden.create(widgets, "red", "dependent", refTo(configMaps, owner))
		h.create(widgets, "red", "dependent") // the extension server's object of the same name
		after(10 * time.Second)
		if !hidden.has(widgets, "red", "dependent") {
			t.Fatal("the hidden dependent does not exist although its owner does, want it kept")
		}
		h.delete(configMaps, "red", "owner", metav1.DeletePropagationBackground)
		after(time.Minute)
		if hidden.has(widgets, "red", "dependent") {
			t.Error("the hidden dependent exists a minute after its owner was deleted, want it deleted")
		}
		if !h.has(widgets, "red", "dependent") {
			t.Error("the extension server's object of the same name was deleted, want it kept")
		}
	})
}

func TestHiddenObjectsOwnTheirDependents(t *testing.T) {
	for name, faults := range map[string]map[schema.GroupVersion]fault{
		"extension server without the owner": nil,
		"dead extension server":              {widgets.GroupVersion(): unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			withHidden(t, func(h *env, hidden *model) {
				h.faults = faults
				h.create(configMaps, "red", "dependent", refTo(widgets, hidden.create(widgets, "red", "owner")))
			}, func(t *testing.T, h *env, hidden *model) {
				after(5 * time.Minute)
				if !h.has(configMaps, "red", "dependent") {
					t.Fatal("the dependent of a hidden owner was deleted, want it kept")
				}
				h.reset(nil, nil)
				hidden.delete(widgets, "red", "owner", metav1.DeletePropagationBackground)
				after(2 * time.Minute)
				if h.has(configMaps, "red", "dependent") {
					t.Error("the dependent exists two minutes after its hidden owner was deleted, want it deleted")
				}
			})
		})
	}
}

func TestHiddenObjectsOwnHiddenObjects(t *testing.T) {
	withHidden(t, nil, func(t *testing.T, h *env, hidden *model) {
		owner := hidden.create(widgets, "red", "owner")
		hidden.create(widgets, "red", "dependent", refTo(widgets, owner))
		after(time.Minute)
		if !hidden.has(widgets, "red", "dependent") {
			t.Fatal("the dependent of a hidden owner was deleted, want it kept")
		}
		hidden.delete(widgets, "red", "owner", metav1.DeletePropagationForeground)
		after(2 * time.Minute)
		if hidden.has(widgets, "red", "owner") || hidden.has(widgets, "red", "dependent") {
			t.Error("hidden objects exist two minutes after a deletion in the foreground, want both deleted")
		}
	})
}

func TestHiddenOwnersSurviveDeletionOfAPIService(t *testing.T) {
	withHidden(t, func(h *env, hidden *model) {
		h.create(configMaps, "red", "dependent", refTo(widgets, hidden.create(widgets, "red", "owner")))
	}, func(t *testing.T, h *env, hidden *model) {
		after(time.Minute)
		// The APIService is deleted: the same objects are served here.
		h.mu.Lock()
		hidden.mu.Lock()
		h.objects[widgets], h.history[widgets] = hidden.objects[widgets], nil
		h.version = max(h.version, hidden.version)
		for uid, o := range hidden.byUID {
			h.byUID[uid] = o
		}
		hidden.mu.Unlock()
		h.mu.Unlock()
		h.discovery.Store(healthy().with(widgets.GroupVersion(), func(g *GroupVersion) { g.Local = true }))
		after(5 * time.Minute)
		if !h.has(configMaps, "red", "dependent") {
			t.Error("the dependent was deleted when its owner was no longer hidden, want it kept")
		}
	})
}
