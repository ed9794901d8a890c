package namespaces

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var gadgets = schema.GroupVersionResource{Group: "tools.example.com", Version: "v1", Resource: "gadgets"}

// hosted returns a group-version whose backend's Service is in a namespace.
func hosted(gvr schema.GroupVersionResource, namespace string) GroupVersion {
	return GroupVersion{
		GroupVersion: gvr.GroupVersion(), Known: true, Current: true, Resources: []Resource{everyVerb(gvr.Resource)},
		APIService: gvr.Version + "." + gvr.Group, UID: types.UID(gvr.Group),
		Service: types.NamespacedName{Namespace: namespace, Name: gvr.Group},
	}
}

// selfHosted returns an env with namespaces that are being deleted. A backend dies with its Service: it is served as long as
// the pods, which represent all objects that run it, exist.
func selfHosted(t *testing.T, namespaces []string, backends ...GroupVersion) (*env, *Finalizer) {
	var objects []runtime.Object
	for _, ns := range namespaces {
		objects = append(objects, terminating(ns, types.UID("uid-of-"+ns)))
	}
	w := newEnv(t, objects...)
	for _, ns := range namespaces {
		w.metadata.put(pods, ns, "backend")
	}
	f := w.finalizer()
	f.Served = func() []GroupVersion {
		out := []GroupVersion{coreV1()}
		for _, b := range backends {
			if !w.metadata.holds(pods, b.Service.Namespace) {
				b.Current, b.Reason = false, "ServiceNotFound"
				b.UnreachableSince = time.Now().Add(-time.Second)
			}
			out = append(out, b)
		}
		return out
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.informer.Core().V1().Namespaces().Informer()
	w.informer.Start(ctx.Done())
	w.informer.WaitForCacheSync(ctx.Done())
	t.Cleanup(func() {
		cancel()
		w.informer.Shutdown()
	})
	return w, f
}

func (s *fakeMetadata) holds(gvr schema.GroupVersionResource, namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.objects[gvr], func(o metav1.PartialObjectMetadata) bool { return o.Namespace == namespace })
}

// drive reconciles the namespaces in turns until all are gone.
func drive(t *testing.T, w *env, f *Finalizer, namespaces ...string) time.Duration {
	t.Helper()
	start := time.Now()
	for time.Since(start) < time.Hour {
		left := 0
		for _, ns := range namespaces {
			if w.gone(ns) {
				continue
			}
			left++
			if _, err := f.reconcile(context.Background(), ns); err != nil {
				t.Fatalf("reconcile of %s failed: %v, want no error", ns, err)
			}
		}
		if left == 0 {
			return time.Since(start)
		}
		time.Sleep(time.Second)
		synctest.Wait()
	}
	for _, ns := range namespaces {
		if !w.gone(ns) {
			t.Errorf("namespace %s exists after an hour: %s; %s, want it gone", ns, w.condition(ns, contentRemaining), w.condition(ns, discoveryFailure))
		}
	}
	return time.Since(start)
}

func TestContentIsDeletedBeforeItsBackend(t *testing.T) {
	tests := map[string]struct {
		namespaces []string
		backends   []GroupVersion
		contents   map[string]schema.GroupVersionResource
	}{
		"a backend in its own namespace": {
			[]string{"a"}, []GroupVersion{hosted(widgets, "a")},
			map[string]schema.GroupVersionResource{"a": widgets},
		},
		"several backends in one namespace": {
			[]string{"a"}, []GroupVersion{hosted(widgets, "a"), hosted(gadgets, "a")},
			map[string]schema.GroupVersionResource{"a": gadgets},
		},
		"another namespace that is being deleted needs it": {
			[]string{"a", "b"}, []GroupVersion{hosted(widgets, "a")},
			map[string]schema.GroupVersionResource{"a": widgets, "b": widgets},
		},
		"two namespaces hold each other's backends": {
			[]string{"a", "b"}, []GroupVersion{hosted(widgets, "a"), hosted(gadgets, "b")},
			map[string]schema.GroupVersionResource{"a": gadgets, "b": widgets},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, f := selfHosted(t, tt.namespaces, tt.backends...)
				for ns, gvr := range tt.contents {
					w.metadata.put(gvr, ns, "x")
					w.metadata.put(gvr, ns, "y")
				}
				took := drive(t, w, f, tt.namespaces...)
				if n := w.metadata.count(widgets) + w.metadata.count(gadgets); n != 0 {
					t.Errorf("objects left = %v, want no widgets and gadgets", w.metadata.objects)
				}
				// A backend that was seen to be empty while it was alive does not delay the namespace after it died.
				if took > DefaultCycleGrace/2 || len(w.debtStore.All()) != 0 {
					t.Errorf("deletion took %v with debts %v, want at most %v and no debts", took, w.debtStore.All(), DefaultCycleGrace/2)
				}
			})
		})
	}
}

// An object that cannot be deleted keeps the backend alive, and the condition names it.
func TestBackendIsKeptForUndeletableObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := selfHosted(t, []string{"a", "b"}, hosted(widgets, "a"))
		w.metadata.put(widgets, "b", "held", "example.com/hold")
		for range 5 {
			for _, ns := range []string{"a", "b"} {
				if _, err := f.reconcile(t.Context(), ns); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !w.metadata.holds(pods, "a") {
			t.Error("the backend's pods were deleted while an object of it exists, want them kept")
		}
		if got := w.condition("a", contentRemaining); !strings.Contains(got, "widgets.shop.example.com of namespace b") {
			t.Errorf("condition %s = %s, want it to name the widgets of namespace b", contentRemaining, got)
		}
		w.metadata.release(widgets)
		drive(t, w, f, "a", "b")
	})
}

// The backend was gone before the deletion: it receives no requests, and after the grace period the namespace does not wait.
func TestBackendRemovedEarlierDoesNotBlockNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := selfHosted(t, []string{"doomed"}, hosted(widgets, "doomed"), hosted(gadgets, "doomed"))
		w.metadata.release(pods)
		w.metadata.put(widgets, "doomed", "orphan")
		lost := time.Now()
		served := f.Served
		f.Served = func() []GroupVersion {
			out := served()
			for i := range out[1:] {
				out[1+i].UnreachableSince = lost
			}
			return out
		}
		took := drive(t, w, f, "doomed")
		if took < DefaultCycleGrace || took > DefaultCycleGrace+10*time.Second {
			t.Errorf("deletion took %v, want a little more than %v", took, DefaultCycleGrace)
		}
		if n := len(w.debtStore.All()); n != 2 {
			t.Errorf("%d debts, want 2: one for each backend", n)
		}
	})
}

// An empty result counts only until the backend is alive again: it may have received new objects since.
func TestEmptyResultExpiresWhenBackendReturns(t *testing.T) {
	ns, gv := terminating("b", "uid-of-b"), hosted(widgets, "a")
	other := gv
	other.UID = "another registration"
	tests := map[string]struct {
		change func(*emptyVersions)
		asked  GroupVersion
		want   bool
	}{
		"it was seen to be empty":             {func(*emptyVersions) {}, gv, true},
		"another backend is registered":       {func(*emptyVersions) {}, other, false},
		"it came back to life and died again": {func(c *emptyVersions) { c.forgetVersions(ns, []GroupVersion{gv}) }, gv, false},
		"another one came back":               {func(c *emptyVersions) { c.forgetVersions(ns, []GroupVersion{other}) }, gv, true},
		"something was found since":           {func(c *emptyVersions) { c.record(ns, []GroupVersion{gv}, false) }, gv, false},
		"the namespace went":                  {func(c *emptyVersions) { c.forget("b") }, gv, false},
		"another namespace has the name":      {func(c *emptyVersions) { c.record(terminating("b", "another"), []GroupVersion{other}, true) }, gv, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var c emptyVersions
			c.record(ns, []GroupVersion{gv}, true)
			tt.change(&c)
			if got := c.covers(ns, []GroupVersion{tt.asked}); got != tt.want {
				t.Errorf("covers() = %v, want %v", got, tt.want)
			}
		})
	}
}
