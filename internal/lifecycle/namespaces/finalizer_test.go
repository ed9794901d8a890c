package namespaces

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"portico.dev/internal/lifecycle/debts"
)

const (
	discoveryFailure    = corev1.NamespaceDeletionDiscoveryFailure
	parsingFailure      = corev1.NamespaceDeletionGVParsingFailure
	contentFailure      = corev1.NamespaceDeletionContentFailure
	contentRemaining    = corev1.NamespaceContentRemaining
	finalizersRemaining = corev1.NamespaceFinalizersRemaining
)

// allGood returns the five conditions of a namespace without faults.
func allGood() map[corev1.NamespaceConditionType]string {
	return map[corev1.NamespaceConditionType]string{
		discoveryFailure:    "False ResourcesDiscovered: All resources successfully discovered",
		parsingFailure:      "False ParsedGroupVersions: All legacy kube types successfully parsed",
		contentFailure:      "False ContentDeleted: All content successfully deleted, may be waiting on finalization",
		contentRemaining:    "False ContentRemoved: All content successfully removed",
		finalizersRemaining: "False ContentHasNoFinalizers: All content-preserving finalizers finished",
	}
}

// only is a fault of one verb of one resource.
func only(verb string, gvr schema.GroupVersionResource, err error) func(context.Context, string, schema.GroupVersionResource) error {
	return func(_ context.Context, v string, g schema.GroupVersionResource) error {
		if v == verb && g == gvr {
			return err
		}
		return nil
	}
}

// anyVerb is a fault of all verbs of one resource.
func anyVerb(gvr schema.GroupVersionResource, err error) func(context.Context, string, schema.GroupVersionResource) error {
	return func(_ context.Context, _ string, g schema.GroupVersionResource) error {
		if g == gvr {
			return err
		}
		return nil
	}
}

func TestNamespaceWithRemainingContentIsKept(t *testing.T) {
	unavailable := apierrors.NewServiceUnavailable("APIService v1.shop.example.com is not available")
	tests := map[string]struct {
		prepare func(*env)
		want    map[corev1.NamespaceConditionType]string // in addition to allGood
		again   time.Duration                            // 0: an error, which backs off
	}{
		"an object has finalizers": {
			prepare: func(w *env) {
				w.metadata.put(configMaps, "doomed", "a", "example.com/hold")
				w.metadata.put(configMaps, "doomed", "b", "example.com/hold", "example.com/other")
				w.metadata.put(configMaps, "doomed", "c")
				w.metadata.put(secrets, "doomed", "d", "example.com/hold")
			},
			want: map[corev1.NamespaceConditionType]string{
				contentRemaining: "True SomeResourcesRemain: Some resources are remaining: " +
					"configmaps. has 2 resource instances, secrets. has 1 resource instances",
				finalizersRemaining: "True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: " +
					"example.com/hold in 3 resource instances, example.com/other in 1 resource instances",
			},
			again: finalizerEstimate/2 + time.Second,
		},
		"a pod remains, and it is told so (k/k#138208)": {
			prepare: func(w *env) {
				w.metadata.put(pods, "doomed", "p", "example.com/hold")
				w.metadata.put(configMaps, "doomed", "a")
			},
			want: map[corev1.NamespaceConditionType]string{
				contentRemaining: "True SomeResourcesRemain: Some resources are remaining: pods. has 1 resource instances",
				finalizersRemaining: "True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: " +
					"example.com/hold in 1 resource instances",
			},
			again: finalizerEstimate/2 + time.Second,
		},
		"a dead backend may hold objects": {
			prepare: func(w *env) { w.served = append(w.served, shop(dead)) },
			want: map[corev1.NamespaceConditionType]string{
				discoveryFailure: "True DiscoveryFailed: Discovery failed for some groups, 1 failing: unable to retrieve the complete " +
					"list of server APIs: shop.example.com/v1: APIService v1.shop.example.com is not available " +
					"(FailedDiscoveryCheck since 2026-05-04T03:02:01Z), it may hold widgets of this namespace",
			},
			again: blockedRetry,
		},
		"a dead backend was never seen alive": {
			prepare: func(w *env) {
				w.served = append(w.served, shop(func(gv *GroupVersion) {
					gv.Current, gv.Known, gv.Resources, gv.Reason = false, false, nil, "ServiceNotFound"
				}))
			},
			want: map[corev1.NamespaceConditionType]string{
				discoveryFailure: "True DiscoveryFailed: Discovery failed for some groups, 1 failing: unable to retrieve the complete " +
					"list of server APIs: shop.example.com/v1: APIService v1.shop.example.com is not available " +
					"(ServiceNotFound), what it holds is not known",
			},
			again: blockedRetry,
		},
		"a backend refuses connections that discovery thinks alive": {
			prepare: func(w *env) {
				w.served = append(w.served, shop(nil))
				w.metadata.fault = only("deletecollection", widgets, unavailable)
			},
			want: map[corev1.NamespaceConditionType]string{
				contentFailure: "True ContentDeletionFailed: Failed to delete all resource types, 1 remaining: APIService v1.shop.example.com: " +
					"shop.example.com/v1, Resource=widgets: delete collection: APIService v1.shop.example.com is not available",
			},
			again: blockedRetry,
		},
		"deletecollection and delete say 200 and do nothing": {
			prepare: func(w *env) {
				w.metadata.put(configMaps, "doomed", "a")
				w.metadata.fault = func(_ context.Context, verb string, _ schema.GroupVersionResource) error {
					if strings.HasPrefix(verb, "delete") {
						return errLie
					}
					return nil
				}
			},
			want: map[corev1.NamespaceConditionType]string{
				contentFailure: "True ContentDeletionFailed: Failed to delete all resource types, 1 remaining: " +
					"unexpected items still remain in namespace: doomed for gvr: /v1, Resource=configmaps",
				contentRemaining: "True SomeResourcesRemain: Some resources are remaining: configmaps. has 1 resource instances",
			},
		},
		"a resource that discovery lists answers 404 without a Status": {
			prepare: func(w *env) {
				w.served = append(w.served, shop(nil))
				gone := apierrors.NewGenericServerResponse(404, "list", widgets.GroupResource(), "", "", 0, true)
				w.metadata.fault = func(_ context.Context, _ string, g schema.GroupVersionResource) error {
					if g == widgets {
						return gone
					}
					return nil
				}
			},
			want: map[corev1.NamespaceConditionType]string{
				contentFailure: "True ContentDeletionFailed: Failed to delete all resource types, 1 remaining: APIService v1.shop.example.com: " +
					"shop.example.com/v1, Resource=widgets: list: the server could not find the requested resource (list widgets.shop.example.com)",
			},
		},
		"deleting is forbidden": {
			prepare: func(w *env) {
				w.metadata.put(secrets, "doomed", "kept", "example.com/hold")
				w.metadata.fault = only("deletecollection", secrets, apierrors.NewForbidden(secrets.GroupResource(), "", errors.New("policy")))
			},
			want: map[corev1.NamespaceConditionType]string{
				contentFailure: "True ContentDeletionFailed: Failed to delete all resource types, 1 remaining: /v1, Resource=secrets: " +
					"delete collection: secrets is forbidden: policy",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t, terminating("doomed", "1"))
			tt.prepare(w)
			again, err := w.finalizer().reconcile(t.Context(), "doomed")
			if w.gone("doomed") {
				t.Fatal("the namespace was finalized, want it kept")
			}
			if again != tt.again || (err == nil) != (tt.again > 0) {
				t.Errorf("reconcile = again after %v, error %v, want %v", again, err, tt.again)
			}
			for kind, want := range allGood() {
				if other, ok := tt.want[kind]; ok {
					want = other
				}
				if got := w.condition("doomed", kind); got != want {
					t.Errorf("condition %s = %s, want %s", kind, got, want)
				}
			}
		})
	}
}

func TestNamespaceIsFinalized(t *testing.T) {
	tests := map[string]func(*env){
		"it is empty": func(*env) {},
		"it holds objects of several groups": func(w *env) {
			w.served = append(w.served, shop(nil))
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				w.metadata.put(configMaps, "doomed", name)
				w.metadata.put(widgets, "doomed", name)
				w.metadata.put(pods, "doomed", name)
			}
		},
		"a dead backend is known to hold nothing that can be deleted (k/k#75788)": func(w *env) {
			w.served = append(w.served, shop(func(gv *GroupVersion) { dead(gv); gv.Resources = nil }))
		},
		"a dead backend is declared to keep nothing": func(w *env) {
			w.served = append(w.served, shop(func(gv *GroupVersion) { dead(gv); gv.NonPersistent = true }))
		},
		"a backend that is declared to keep nothing has something all the same": func(w *env) {
			w.served = append(w.served, shop(func(gv *GroupVersion) { gv.NonPersistent = true }))
			w.metadata.fault = func(_ context.Context, _ string, g schema.GroupVersionResource) error {
				if g == widgets {
					return errors.New("measurements cannot be deleted")
				}
				return nil
			}
		},
		"deletecollection says 200 and does nothing": func(w *env) {
			w.served = append(w.served, shop(nil))
			w.metadata.put(widgets, "doomed", "a")
			w.metadata.put(widgets, "doomed", "b")
			w.metadata.fault = only("deletecollection", widgets, errLie)
		},
		"a resource has no deletecollection": func(w *env) {
			w.served = append(w.served, shop(func(gv *GroupVersion) { gv.Resources[0].DeleteCollection = false }))
			w.metadata.put(widgets, "doomed", "a")
			w.metadata.put(widgets, "doomed", "b")
			w.metadata.put(widgets, "doomed", "c")
		},
		"deletecollection answers 405": func(w *env) {
			w.served = append(w.served, shop(nil))
			w.metadata.put(widgets, "doomed", "a")
			w.metadata.fault = func(_ context.Context, verb string, g schema.GroupVersionResource) error {
				if verb == "deletecollection" && g == widgets {
					return apierrors.NewMethodNotSupported(g.GroupResource(), verb)
				}
				return nil
			}
		},
		"list answers 405": func(w *env) {
			w.served = append(w.served, shop(nil))
			w.metadata.put(widgets, "doomed", "a")
			w.metadata.fault = only("list", widgets, apierrors.NewMethodNotSupported(widgets.GroupResource(), "list"))
		},
		"list and deletecollection answer 405": func(w *env) {
			w.served = append(w.served, shop(nil))
			w.metadata.fault = anyVerb(widgets, apierrors.NewMethodNotSupported(widgets.GroupResource(), "list"))
		},
		"list answers 404 with a Status": func(w *env) {
			w.served = append(w.served, shop(nil))
			w.metadata.fault = anyVerb(widgets, apierrors.NewGenericServerResponse(404, "list", widgets.GroupResource(), "", "", 0, false))
		},
		"a resource can neither be listed nor deleted as a collection": func(w *env) {
			w.served = append(w.served, shop(func(gv *GroupVersion) { gv.Resources = []Resource{{Name: "widgets"}} }))
		},
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t, terminating("doomed", "1"))
			w.metadata.put(configMaps, "neighbour", "mine")
			prepare(w)
			f := w.finalizer()
			again, err := f.reconcile(t.Context(), "doomed")
			if err == nil && again == firstRecheck { // a backend had objects to delete, and is listed once more
				again, err = f.reconcile(t.Context(), "doomed")
			}
			if err != nil || again != 0 {
				t.Fatalf("reconcile: again %v, error %v, want 0s and no error", again, err)
			}
			if !w.gone("doomed") {
				t.Error("the namespace still exists, want it gone")
			}
			if w.metadata.count(configMaps) != 1 || w.metadata.count(widgets) != 0 || w.metadata.count(pods) != 0 {
				t.Errorf("objects left = %v, want only the configmap of the neighbour", w.metadata.objects)
			}
		})
	}
}

func TestPodsAreDeletedFirst(t *testing.T) {
	w := newEnv(t, terminating("doomed", "1"))
	w.metadata.put(pods, "doomed", "p", "example.com/hold")
	w.metadata.put(configMaps, "doomed", "mounted-by-p")
	f := w.finalizer()
	if _, err := f.reconcile(t.Context(), "doomed"); err != nil {
		t.Fatal(err)
	}
	if w.metadata.count(configMaps) != 1 {
		t.Errorf("%d configmaps while a pod is running, want 1", w.metadata.count(configMaps))
	}
	w.metadata.release(pods)
	if _, err := f.reconcile(t.Context(), "doomed"); err != nil || !w.gone("doomed") {
		t.Errorf("reconcile after the pod ended: error %v, gone %v, want no error and the namespace gone", err, w.gone("doomed"))
	}
}

func TestRunningPodsGetGracePeriod(t *testing.T) {
	now := time.Now()
	ends, seconds := metav1.NewTime(now.Add(20*time.Second)), int64(30)
	past := metav1.NewTime(now.Add(-time.Second))
	tests := map[string]struct {
		pod  corev1.Pod
		want time.Duration
	}{
		"being deleted":       {corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &ends}}, ends.Sub(now)},
		"its grace has ended": {corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &past}}, 0},
		"not being deleted":   {corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &seconds}}, 30 * time.Second},
		"finished": {corev1.Pod{
			Spec:   corev1.PodSpec{TerminationGracePeriodSeconds: &seconds},
			Status: corev1.PodStatus{Phase: corev1.PodSucceeded},
		}, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := graceLeft(&tt.pod, now); got != tt.want {
				t.Errorf("graceLeft() = %v, want %v", got, tt.want)
			}
		})
	}
}

// An empty answer of discovery would make every namespace look empty.
func TestNamespaceIsKeptUntilDiscoveryIsComplete(t *testing.T) {
	for name, served := range map[string][]GroupVersion{"no answer yet": nil, "remote groups only": {shop(nil)}} {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t, terminating("doomed", "1"))
			w.served = served
			if _, err := w.finalizer().reconcile(t.Context(), "doomed"); !errors.Is(err, errNotDiscovered) {
				t.Errorf("reconcile without discovery: error = %v, want %v", err, errNotDiscovered)
			}
			if w.gone("doomed") || len(w.metadata.calls) > 0 {
				t.Errorf("gone %v, calls %v, want the namespace kept and no calls", w.gone("doomed"), w.metadata.calls)
			}
		})
	}
}

func TestNamespaceRecreatedDuringDeletionIsKept(t *testing.T) {
	w := newEnv(t, terminating("doomed", "1"))
	w.served = append(w.served, shop(nil))
	reads := 0
	w.client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		reads++
		if reads == 1 {
			return false, nil, nil
		}
		ns := terminating("doomed", "2")
		ns.DeletionTimestamp = nil
		return true, ns, nil
	})
	w.metadata.put(configMaps, "doomed", "somebody-needs-this")
	w.metadata.put(widgets, "doomed", "and-this")
	if _, err := w.finalizer().reconcile(t.Context(), "doomed"); err != nil {
		t.Fatal(err)
	}
	if w.metadata.count(configMaps) != 1 || w.metadata.count(widgets) != 1 {
		t.Errorf("calls = %v, want the objects of the new namespace kept", w.metadata.calls)
	}
}

func TestHangingBackendDelaysOnlyItsOwnObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEnv(t, terminating("doomed", "1"))
		w.served = append(w.served, shop(func(gv *GroupVersion) { gv.Resources = append(gv.Resources, everyVerb("gadgets")) }))
		w.metadata.put(configMaps, "doomed", "a")
		w.metadata.fault = func(ctx context.Context, _ string, g schema.GroupVersionResource) error {
			if g.Group == widgets.Group {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		start := time.Now()
		again, err := w.finalizer().reconcile(t.Context(), "doomed")
		if err != nil || again != blockedRetry {
			t.Errorf("reconcile with a hanging backend: again %v, error %v, want %v and no error", again, err, blockedRetry)
		}
		if took := time.Since(start); took != debts.CallTimeout {
			t.Errorf("one sweep took %v, want one timeout of %v", took, debts.CallTimeout)
		}
		if w.metadata.count(configMaps) != 0 {
			t.Errorf("%d configmaps after one sweep, want 0: they do not wait for the hanging backend", w.metadata.count(configMaps))
		}
		if got := w.condition("doomed", contentFailure); !strings.Contains(got, "APIService v1.shop.example.com: shop.example.com/v1, Resource=widgets: list: no answer within 5s") {
			t.Errorf("condition %s = %s, want the hanging APIService and its resource", contentFailure, got)
		}
	})
}

func TestWaitingForBackendDoesNotRepeatDeletion(t *testing.T) {
	w := newEnv(t, terminating("doomed", "1"))
	w.served = append(w.served, shop(dead))
	f := w.finalizer()
	for range 10 {
		if again, err := f.reconcile(t.Context(), "doomed"); err != nil || again != blockedRetry {
			t.Fatalf("reconcile while the backend is dead: again %v, error %v, want %v and no error", again, err, blockedRetry)
		}
	}
	if n := w.metadata.called("list", configMaps); n != 1 {
		t.Errorf("%d sweeps while waiting for the backend, want 1", n)
	}
	// An object was created past admission, and the backend returns with an object of this namespace.
	w.metadata.put(configMaps, "doomed", "late")
	w.metadata.put(widgets, "doomed", "kept-through-the-outage")
	w.served[1] = shop(nil)
	for range 2 {
		if _, err := f.reconcile(t.Context(), "doomed"); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Contains(w.probed, "v1.shop.example.com") {
		t.Errorf("probed APIServices = %v, want v1.shop.example.com", w.probed)
	}
	if !w.gone("doomed") || w.metadata.count(configMaps)+w.metadata.count(widgets) != 0 {
		t.Errorf("gone %v, objects left %v, want the namespace gone and no objects", w.gone("doomed"), w.metadata.objects)
	}
}

// The objects of a namespace stay for a second after its deletion: extension servers have to receive the deletion, and `kubectl
// delete -f` of a manifest with the namespace and its objects has to find them.
func TestNamespaceContentIsKeptForOneSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEnv(t, terminating("doomed", "1"))
		w.metadata.put(configMaps, "doomed", "a")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		cfg := w.config()
		f := New(cfg)
		cfg.Namespaces.Informer()
		w.informer.Start(ctx.Done())
		go func() { done <- f.Run(ctx) }()
		time.Sleep(firstDelay - 10*time.Millisecond)
		synctest.Wait()
		if w.metadata.count(configMaps) != 1 {
			t.Errorf("%d configmaps shortly before the delay ends, want 1", w.metadata.count(configMaps))
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if w.metadata.count(configMaps) != 0 || !w.gone("doomed") {
			t.Errorf("%d configmaps and namespace gone %v after the delay, want 0 and true", w.metadata.count(configMaps), w.gone("doomed"))
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		w.informer.Shutdown()
	})
}

// A custom resource can be created before discovery, on which the sweep relies, includes its definition.
func TestNamespaceWaitsForDiscoveryOfCustomResources(t *testing.T) {
	boats := schema.GroupVersionResource{Group: "sea.example.com", Version: "v1", Resource: "boats"}
	w := newEnv(t, terminating("doomed", "1"))
	w.metadata.put(boats, "doomed", "a")
	cfg := w.config()
	defined := []schema.GroupVersionResource{boats}
	cfg.Defined = func(context.Context) ([]schema.GroupVersionResource, error) { return defined, nil }
	f := New(cfg)
	if _, err := f.reconcile(t.Context(), "doomed"); err == nil || err.Error() != "boats.sea.example.com is defined and not in discovery yet" || w.gone("doomed") {
		t.Fatalf("reconcile before discovery includes the definition: error = %v, gone %t, want an error and the namespace kept", err, w.gone("doomed"))
	}
	boatsVersion := GroupVersion{GroupVersion: boats.GroupVersion(), Known: true, Current: true}
	w.serve(coreV1(), boatsVersion)
	if _, err := f.reconcile(t.Context(), "doomed"); err == nil || w.gone("doomed") {
		t.Fatalf("reconcile when discovery includes another resource of the group: error = %v, want an error and the namespace kept", err)
	}
	cfg.Defined = func(context.Context) ([]schema.GroupVersionResource, error) {
		return nil, errors.New("etcd does not answer")
	}
	if _, err := New(cfg).reconcile(t.Context(), "doomed"); err == nil || w.gone("doomed") {
		t.Fatalf("reconcile when the definitions cannot be read: error = %v, want an error and the namespace kept", err)
	}
	boatsVersion.Resources = []Resource{everyVerb("boats")}
	w.serve(coreV1(), boatsVersion)
	if _, err := f.reconcile(t.Context(), "doomed"); err != nil || !w.gone("doomed") || w.metadata.count(boats) > 0 {
		t.Fatalf("reconcile when discovery includes the definition: error = %v, gone %t, %d boats, want no error, the namespace gone and 0 boats", err, w.gone("doomed"), w.metadata.count(boats))
	}
}

// settled lets d pass and waits until all work that is due in it is done.
func settled(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// From the deletion to the end, as users see it: only the informer calls the controller.
func TestInformerEventTriggersNamespaceDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEnv(t)
		w.serve(coreV1(), shop(dead))
		f := w.finalizer()
		ctx, cancel := context.WithCancel(t.Context())
		f.Namespaces.Informer()
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
		func() {
			w.metadata.put(configMaps, "doomed", "a")
			if _, err := w.client.CoreV1().Namespaces().Create(t.Context(), terminating("doomed", "1"), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			settled(2 * time.Second)
			if w.gone("doomed") {
				t.Fatal("the namespace was finalized although a dead backend may hold its objects, want it kept")
			}
			if got := w.condition("doomed", discoveryFailure); got[:4] != "True" {
				t.Errorf("condition %s after 2 s = %s, want True", discoveryFailure, got)
			}
			settled(time.Hour)
			if w.gone("doomed") {
				t.Fatal("the namespace was finalized after an hour of waiting, want it kept")
			}
			w.serve(coreV1(), shop(nil))
			settled(5 * time.Second)
			if !w.gone("doomed") {
				t.Error("the namespace still exists 5 s after the backend returned, want it gone")
			}
		}()
	})
}

// hiddenWidgets is a group-version that is stored here and served by the extension server of shop.
func hiddenWidgets() GroupVersion {
	return GroupVersion{
		GroupVersion: widgets.GroupVersion(), Known: true, Current: true, Resources: []Resource{everyVerb("widgets")}, HiddenBy: "v1.shop.example.com",
	}
}

func TestHiddenObjectsAreDeletedWithTheirNamespace(t *testing.T) {
	for name, served := range map[string]GroupVersion{
		"extension server with the same resource": shop(nil),
		"extension server without resources":      shop(func(gv *GroupVersion) { gv.Resources = nil }),
		"extension server that stores nothing":    shop(func(gv *GroupVersion) { gv.NonPersistent = true }),
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t, terminating("doomed", "1"))
			w.served = append(w.served, served, hiddenWidgets())
			hidden := newFakeMetadata()
			hidden.put(widgets, "doomed", "a", "example.com/hold")
			hidden.put(widgets, "doomed", "b")
			cfg := w.config()
			cfg.Hidden = hidden
			cfg.Defined = func(context.Context) ([]schema.GroupVersionResource, error) {
				return []schema.GroupVersionResource{widgets}, nil
			}
			f := New(cfg)
			if _, err := f.reconcile(t.Context(), "doomed"); err != nil || w.gone("doomed") {
				t.Fatalf("reconcile: error %v, gone %v, want no error and the namespace kept by a finalizer", err, w.gone("doomed"))
			}
			want := "True SomeResourcesRemain: Some resources are remaining: " +
				"widgets.shop.example.com (stored here and hidden by APIService v1.shop.example.com) has 1 resource instances"
			if got := w.condition("doomed", contentRemaining); got != want {
				t.Errorf("condition %s = %s, want %s", contentRemaining, got, want)
			}
			hidden.release(widgets)
			if _, err := f.reconcile(t.Context(), "doomed"); err != nil || !w.gone("doomed") {
				t.Errorf("reconcile: error %v, gone %v, want no error and the namespace gone", err, w.gone("doomed"))
			}
		})
	}
}

// A resource of the same name at an extension server has different objects from the resource that is stored here.
func TestLocalObjectsAreDeletedNextToExtensionServer(t *testing.T) {
	older := schema.GroupVersionResource{Group: widgets.Group, Version: "v1beta1", Resource: "widgets"}
	w := newEnv(t, terminating("doomed", "1"))
	w.served = append(w.served, shop(nil), GroupVersion{GroupVersion: older.GroupVersion(), Known: true, Current: true, Resources: []Resource{everyVerb("widgets")}})
	w.metadata.put(widgets, "doomed", "at-the-server")
	w.metadata.put(older, "doomed", "stored-here")
	f := w.finalizer()
	for range 3 {
		if _, err := f.reconcile(t.Context(), "doomed"); err != nil {
			t.Fatal(err)
		}
	}
	if !w.gone("doomed") || w.metadata.count(older) != 0 || w.metadata.count(widgets) != 0 {
		t.Errorf("gone = %v, objects = %v, want the namespace gone and no objects", w.gone("doomed"), w.metadata.objects)
	}
}

// The namespace waits until discovery includes its hidden custom resources.
func TestNamespaceWaitsForHiddenDefinition(t *testing.T) {
	w := newEnv(t, terminating("doomed", "1"))
	w.served = append(w.served, shop(nil))
	cfg := w.config()
	cfg.Defined = func(context.Context) ([]schema.GroupVersionResource, error) {
		return []schema.GroupVersionResource{widgets}, nil
	}
	_, err := New(cfg).reconcile(t.Context(), "doomed")
	if err == nil || !strings.Contains(err.Error(), "widgets.shop.example.com is defined and not in discovery yet") || w.gone("doomed") {
		t.Errorf("reconcile: error %v, gone %v, want an error that names the definition and the namespace kept", err, w.gone("doomed"))
	}
}
