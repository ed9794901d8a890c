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

// hosted is a group-version whose backend's Service is in a namespace.
func hosted(gvr schema.GroupVersionResource, namespace string) GroupVersion {
	return GroupVersion{
		GroupVersion: gvr.GroupVersion(), Known: true, Current: true, Resources: []Resource{everyVerb(gvr.Resource)},
		APIService: gvr.Version + "." + gvr.Group, UID: types.UID(gvr.Group),
		Service: types.NamespacedName{Namespace: namespace, Name: gvr.Group},
	}
}

// selfHosted is a world with namespaces that are being deleted, in which a backend dies with its Service: it is served
// for as long as the pods, which stand for the whole of what runs it, are there.
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

// drive looks at the namespaces in turns until all have gone.
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
				t.Fatalf("%s: %v", ns, err)
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
			t.Errorf("%s is still there: %s; %s", ns, w.condition(ns, contentRemaining), w.condition(ns, discoveryFailure))
		}
	}
	return time.Since(start)
}

func TestContentGoesWhileItsBackendIsAlive(t *testing.T) {
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
					t.Errorf("orphans: %v", w.metadata.objects)
				}
				// Seen to be empty while it was alive, a backend is not waited for when it is dead.
				if took > DefaultCycleGrace/2 || len(w.debtStore.All()) != 0 {
					t.Errorf("took %v, debts %v", took, w.debtStore.All())
				}
			})
		})
	}
}

// What cannot go keeps the backend alive, and the namespace says what that is.
func TestABackendIsKeptForWhatNeedsIt(t *testing.T) {
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
			t.Error("the backend was taken away from an object that is still there")
		}
		if got := w.condition("a", contentRemaining); !strings.Contains(got, "widgets.shop.example.com of namespace b") {
			t.Errorf("the condition does not say what is waited for: %s", got)
		}
		w.metadata.release(widgets)
		drive(t, w, f, "a", "b")
	})
}

// The backend was gone before anybody looked: nothing can be asked, and after the grace nothing is waited for.
func TestBackendGoneBeforeNamespaceDeletion(t *testing.T) {
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
			t.Errorf("took %v, want a little more than %v", took, DefaultCycleGrace)
		}
		if n := len(w.debtStore.All()); n != 2 {
			t.Errorf("%d debts, want one for each backend", n)
		}
	})
}

// What was seen of a backend counts until it lives on: new objects may have come to it since.
func TestEmptyVersionsAreForgotten(t *testing.T) {
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
				t.Errorf("known to be empty: %v, want %v", got, tt.want)
			}
		})
	}
}
