package namespaces

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"portico.dev/internal/lifecycle/debts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	pods       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	widgets    = schema.GroupVersionResource{Group: "shop.example.com", Version: "v1", Resource: "widgets"}
)

// fakeEtcd is etcd in memory.
type fakeEtcd struct {
	mu       sync.Mutex // guards the fields below
	values   map[string][]byte
	replaced func(map[string][]byte)
	writes   []string
}

func (k *fakeEtcd) Put(_ context.Context, key string, value []byte) error {
	k.change(key, func() { k.values[key] = value })
	return nil
}

func (k *fakeEtcd) Delete(_ context.Context, key string) error {
	k.change(key, func() { delete(k.values, key) })
	return nil
}

func (k *fakeEtcd) change(key string, change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.values == nil {
		k.values = map[string][]byte{}
	}
	change()
	k.writes = append(k.writes, key)
	if k.replaced != nil {
		k.replaced(k.values)
	}
}

func (k *fakeEtcd) Mirror(ctx context.Context, _ string, replaced func(map[string][]byte)) {
	k.mu.Lock()
	k.replaced = replaced
	replaced(k.values)
	k.mu.Unlock()
	<-ctx.Done()
}

// openStore opens a store that follows k until the test ends.
func openStore(t *testing.T, k *fakeEtcd) *debts.Store {
	l := debts.NewStore(k, zaptest.NewLogger(t))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	<-l.Ready()
	return l
}

func everyVerb(name string) Resource { return Resource{Name: name, List: true, DeleteCollection: true} }

func coreV1() GroupVersion {
	return GroupVersion{
		GroupVersion: schema.GroupVersion{Version: "v1"}, Known: true, Current: true,
		Resources: []Resource{everyVerb("configmaps"), everyVerb("pods"), everyVerb("secrets")},
	}
}

func shop(change func(*GroupVersion)) GroupVersion {
	gv := GroupVersion{
		GroupVersion: widgets.GroupVersion(), Known: true, Current: true,
		Resources: []Resource{everyVerb("widgets")}, APIService: "v1.shop.example.com", UID: "registration",
		Service: types.NamespacedName{Namespace: "shops", Name: "shop"},
	}
	if change != nil {
		change(&gv)
	}
	return gv
}

func dead(gv *GroupVersion) {
	gv.Current, gv.Reason = false, "FailedDiscoveryCheck"
	gv.Since = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	gv.UnreachableSince = gv.Since
}

// env is an API server in memory with one namespace that is being deleted.
type env struct {
	t         *testing.T
	client    *fake.Clientset
	metadata  *fakeMetadata
	mu        sync.Mutex // guards served
	served    []GroupVersion
	informer  informers.SharedInformerFactory
	debtStore *debts.Store
	probed    []string
}

func newEnv(t *testing.T, objects ...runtime.Object) *env {
	w := &env{t: t, client: fake.NewClientset(objects...), metadata: newFakeMetadata(), served: []GroupVersion{coreV1()}}
	w.debtStore = openStore(t, &fakeEtcd{})
	w.informer = informers.NewSharedInformerFactory(w.client, 0)
	// Like the registry: removing the last finalizer of a namespace that is being deleted removes the namespace.
	w.client.PrependReactor("create", "namespaces", func(a clienttesting.Action) (bool, runtime.Object, error) {
		create, ok := a.(clienttesting.CreateAction)
		if !ok || a.GetSubresource() != "finalize" {
			return false, nil, nil
		}
		ns := create.GetObject().(*corev1.Namespace)
		if len(ns.Spec.Finalizers) > 0 {
			return false, nil, nil
		}
		return true, ns, w.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("namespaces"), "", ns.Name)
	})
	return w
}

func terminating(name string, uid types.UID) *corev1.Namespace {
	now := metav1.Now()
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, DeletionTimestamp: &now},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	}
}

func (w *env) config() Config {
	return Config{
		Client: w.client, Metadata: w.metadata, Namespaces: w.informer.Core().V1().Namespaces(),
		Served: w.servedNow, Debts: w.debtStore,
		Probe:  func(apiService string) { w.probed = append(w.probed, apiService) },
		Logger: zaptest.NewLogger(w.t),
	}
}

func (w *env) serve(served ...GroupVersion) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.served = served
}

func (w *env) servedNow() []GroupVersion {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.served
}

func (w *env) finalizer() *Finalizer {
	return New(w.config())
}

// gone reports whether the namespace has been finalized and removed.
func (w *env) gone(name string) bool {
	_, err := w.client.CoreV1().Namespaces().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
	return err != nil
}

// condition returns "Status Reason: message" of a namespace's condition.
func (w *env) condition(name string, kind corev1.NamespaceConditionType) string {
	w.t.Helper()
	ns, err := w.client.CoreV1().Namespaces().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range ns.Status.Conditions {
		if c.Type == kind {
			return string(c.Status) + " " + c.Reason + ": " + c.Message
		}
	}
	return "absent"
}
