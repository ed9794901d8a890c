package namespaces

import (
	"context"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The calls and delays of a deletion do not depend on whether a backend without objects of the namespace is alive.
func TestDeadMetricsServerDoesNotDelayDeletion(t *testing.T) {
	metrics := schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1"}
	history := func(alive bool) (calls []string) {
		w := newEnv(t, terminating("doomed", "1"))
		gv := GroupVersion{GroupVersion: metrics, Known: true, Current: alive, APIService: "v1.metrics.k8s.io"}
		if !alive {
			dead(&gv)
		}
		w.served = append(w.served, shop(nil), gv)
		w.metadata.put(configMaps, "doomed", "a")
		w.metadata.put(widgets, "doomed", "a")
		f := w.finalizer()
		for !w.gone("doomed") {
			again, err := f.reconcile(t.Context(), "doomed")
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, again.String())
		}
		w.metadata.mu.Lock()
		defer w.metadata.mu.Unlock()
		requests := slices.Clone(w.metadata.calls)
		slices.Sort(requests) // groups are deleted concurrently
		return append(calls, requests...)
	}
	if alive, dead := history(true), history(false); !slices.Equal(alive, dead) {
		t.Errorf("delays and requests with a dead metrics server = %v, want the same as with a live one: %v", dead, alive)
	}
}

// Objects that reappear are deleted again and again, and the condition reports it.
func TestReappearingObjectsAreDeletedAndReported(t *testing.T) {
	w := newEnv(t, terminating("doomed", "1"))
	w.served = append(w.served, shop(nil))
	w.metadata.put(widgets, "doomed", "phoenix")
	f := w.finalizer()
	for i := range 4 {
		again, err := f.reconcile(t.Context(), "doomed")
		if err != nil || again < firstRecheck || w.gone("doomed") {
			t.Fatalf("reconcile %d: again %v, error %v, gone %v, want at least %v, no error and the namespace kept", i, again, err, w.gone("doomed"), firstRecheck)
		}
		if got := w.condition("doomed", contentRemaining); !strings.Contains(got, "looked for once more: widgets.shop.example.com had 1 resource instances") {
			t.Errorf("condition %s = %s, want it to name the widgets that reappear", contentRemaining, got)
		}
		w.metadata.put(widgets, "doomed", "phoenix")
	}
	w.metadata.release(widgets)
	if _, err := f.reconcile(t.Context(), "doomed"); err != nil || !w.gone("doomed") {
		t.Errorf("reconcile without new objects: error %v, gone %v, want no error and the namespace gone", err, w.gone("doomed"))
	}
}

func TestResourceMissingFromDiscoveryIsStillDeleted(t *testing.T) {
	missing := apierrors.NewGenericServerResponse(404, "list", widgets.GroupResource(), "", "", 0, true)
	nothing := func(gv *GroupVersion) { gv.Resources = nil }
	tests := map[string]struct {
		prepare func(*env)
		changed func(*GroupVersion)
		objects int // in the end
	}{
		"its objects are still there": {func(w *env) { w.metadata.put(widgets, "doomed", "a") }, nothing, 0},
		"it is really gone": {func(w *env) {
			w.metadata.fault = func(_ context.Context, _ string, g schema.GroupVersionResource) error {
				if g == widgets {
					return missing
				}
				return nil
			}
		}, nothing, 0},
		"another backend is registered": {
			func(w *env) { w.metadata.put(widgets, "doomed", "of-the-old-one") },
			func(gv *GroupVersion) { gv.Resources, gv.UID = nil, "another" }, 1,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t, terminating("doomed", "1"))
			w.served = append(w.served, shop(nil))
			f := w.finalizer()
			f.knownResources.addDropped(w.served)
			tt.prepare(w)
			tt.changed(&w.served[1])
			for i := 0; i < 3 && !w.gone("doomed"); i++ {
				if _, err := f.reconcile(t.Context(), "doomed"); err != nil {
					t.Fatal(err)
				}
			}
			if !w.gone("doomed") || w.metadata.count(widgets) != tt.objects {
				t.Errorf("gone %v, objects left %v, want the namespace gone and %d widgets", w.gone("doomed"), w.metadata.objects, tt.objects)
			}
		})
	}
}
