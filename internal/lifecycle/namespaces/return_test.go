package namespaces

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// changes is a source for Config.Changed.
type changes struct{ current atomic.Pointer[chan struct{}] }

func newChanges() *changes {
	c := &changes{}
	first := make(chan struct{})
	c.current.Store(&first)
	return c
}

func (c *changes) next() <-chan struct{} { return *c.current.Load() }

func (c *changes) announce() {
	fresh := make(chan struct{})
	close(*c.current.Swap(&fresh))
}

// slowCall is the duration of a request on an overloaded machine, where etcd is slow to answer reads.
const slowCall = 300 * time.Millisecond

// manyResources is a local group-version with as many resources as the core group.
func manyResources() GroupVersion {
	gv := coreV1()
	for i := len(gv.Resources); i < 16; i++ {
		gv.Resources = append(gv.Resources, everyVerb(fmt.Sprintf("kind%ds", i)))
	}
	return gv
}

// undiscovered is a backend that answers again, before its discovery document has been received.
func undiscovered(gv *GroupVersion) {
	dead(gv)
	gv.Reason = "the backend's discovery document cannot be fetched"
}

// On overloaded machines, namespaces were gone 10 to 20 s after their backend was available and discovered again. Each step of
// the return began with a deletion of everything in the namespace.
func TestReturnOfBackendEndsNamespaceOnSlowMachine(t *testing.T) {
	const limit = 10 * time.Second // of the drill namespace-dead-storage-bearing
	synctest.Test(t, func(t *testing.T) {
		w := newEnv(t, terminating("doomed", "1"))
		w.serve(manyResources(), shop(dead))
		w.metadata.put(widgets, "doomed", "a")
		w.metadata.put(configMaps, "doomed", "a")
		w.metadata.fault = func(context.Context, string, schema.GroupVersionResource) error {
			time.Sleep(slowCall)
			return nil
		}
		changed := newChanges()
		cfg := w.config()
		cfg.Changed = []func() <-chan struct{}{changed.next}
		cfg.Probe = func(string) {}
		f := New(cfg)
		cfg.Namespaces.Informer()
		ctx, cancel := context.WithCancel(context.Background())
		w.informer.Start(ctx.Done())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run failed: %v, want no error", err)
			}
			w.informer.Shutdown()
		}()
		settled(5 * time.Minute)
		if w.gone("doomed") || w.metadata.count(configMaps) > 0 {
			t.Fatalf("namespace gone %t, %d configmaps after five minutes, want it kept without configmaps", w.gone("doomed"), w.metadata.count(configMaps))
		}
		start := time.Now()
		w.serve(manyResources(), shop(undiscovered))
		changed.announce()
		settled(100 * time.Millisecond)
		w.serve(manyResources(), shop(nil))
		changed.announce()
		for !w.gone("doomed") && time.Since(start) < time.Minute {
			settled(100 * time.Millisecond)
		}
		if took := time.Since(start); took > limit || w.metadata.count(widgets) > 0 {
			t.Errorf("namespace gone %t after %v, %d widgets left; want true after at most %v, and 0", w.gone("doomed"), took, w.metadata.count(widgets), limit)
		}
	})
}

func TestAnotherReasonOfDeadBackendDoesNotRepeatDeletion(t *testing.T) {
	w := newEnv(t, terminating("doomed", "1"))
	f := w.finalizer()
	for i, served := range []GroupVersion{shop(dead), shop(undiscovered), shop(dead)} {
		w.serve(coreV1(), served)
		if again, err := f.reconcile(t.Context(), "doomed"); err != nil || again != blockedRetry {
			t.Fatalf("reconcile %d: again %v, error %v, want %v and no error", i, again, err, blockedRetry)
		}
		if got := w.condition("doomed", discoveryFailure); !strings.Contains(got, "is not available ("+served.Reason) {
			t.Errorf("condition %s = %s, want the reason %q", discoveryFailure, got, served.Reason)
		}
	}
	if n := w.metadata.called("list", configMaps); n != 1 {
		t.Errorf("%d sweeps while the backend was dead for three reasons, want 1", n)
	}
	// Another backend that fails may have been reachable until now.
	other := shop(dead)
	other.Group, other.APIService = "other.example.com", "v1.other.example.com"
	w.serve(coreV1(), shop(dead), other)
	if _, err := f.reconcile(t.Context(), "doomed"); err != nil {
		t.Fatal(err)
	}
	if n := w.metadata.called("list", configMaps); n != 2 {
		t.Errorf("%d sweeps after a second backend failed, want 2", n)
	}
}

// Objects that were created meanwhile are deleted with those of the backend, in the pass before the end.
func TestReturnedBackendIsEmptiedFirst(t *testing.T) {
	w := newEnv(t, terminating("doomed", "1"))
	w.serve(coreV1(), shop(dead))
	f := w.finalizer()
	reconcile := func() {
		t.Helper()
		if _, err := f.reconcile(t.Context(), "doomed"); err != nil {
			t.Fatal(err)
		}
	}
	reconcile()
	w.metadata.put(configMaps, "doomed", "late")
	w.metadata.put(widgets, "doomed", "a")
	w.serve(coreV1(), shop(nil))
	reconcile()
	if w.metadata.count(widgets) != 0 || w.metadata.called("list", configMaps) != 1 || w.gone("doomed") {
		t.Errorf("after the return: %d widgets, %d lists of configmaps, gone %t; want 0, 1 and false",
			w.metadata.count(widgets), w.metadata.called("list", configMaps), w.gone("doomed"))
	}
	reconcile()
	if w.metadata.count(configMaps) != 0 || !w.gone("doomed") {
		t.Errorf("after the second pass: %d configmaps, gone %t; want 0 and true", w.metadata.count(configMaps), w.gone("doomed"))
	}
}
