package trust

import (
	"context"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"portico.dev/internal/clients/clientstest"
)

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// publishing runs a RootCAPublisher in a bubble while test runs.
func publishing(t *testing.T, bundle func() []byte, test func(client *fake.Clientset), objects ...runtime.Object) {
	synctest.Test(t, func(t *testing.T) {
		client := clientstest.NewClientset(objects...)
		factory := informers.NewSharedInformerFactory(client, 0)
		factory.Core().V1().Namespaces().Informer()
		p := NewRootCAPublisher(client, factory.Core().V1().Namespaces(), bundle, nil, zaptest.NewLogger(t))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		factory.Start(ctx.Done())
		settled(5 * time.Second)
		test(client)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		factory.Shutdown()
	})
}

// Both programs write the same, so that neither reverts the other's write.
func TestRootCAConfigMapMatchesUpstream(t *testing.T) {
	old := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: rootCAName}, Data: map[string]string{rootCAKey: "root"}}
	publishing(t, func() []byte { return []byte("root") }, func(client *fake.Clientset) {
		for _, ns := range []string{"default", "kube-system"} { // one from an older version, and a new one
			m, err := client.CoreV1().ConfigMaps(ns).Get(t.Context(), rootCAName, metav1.GetOptions{})
			if err != nil || m.Annotations["kubernetes.io/description"] != rootCADescription {
				t.Errorf("annotations in %s = %v, error %v, want upstream's description", ns, m.Annotations, err)
			}
		}
	}, namespace("default"), namespace("kube-system"), old)
}

// There is one ConfigMap in each namespace, and their common content is stored once.
func TestPublishedRootCAsShareMemory(t *testing.T) {
	l := &latestMaps{}
	received := func(ca string) *corev1.ConfigMap {
		obj, err := l.share(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: rootCAName, Annotations: map[string]string{descriptionAnnotation: rootCADescription}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
			},
			Data: map[string]string{rootCAKey: ca},
		})
		if err != nil {
			t.Fatal(err)
		}
		return obj.(*corev1.ConfigMap)
	}
	pointer := func(m map[string]string) uintptr { return reflect.ValueOf(m).Pointer() }
	one, two, changed := received("root"), received("root"), received("another")
	if pointer(one.Data) != pointer(two.Data) || pointer(one.Annotations) != pointer(changed.Annotations) {
		t.Error("equal content is stored twice, want it shared")
	}
	if changed.Data[rootCAKey] != "another" || received("root").Data[rootCAKey] != "root" || two.Data[rootCAKey] != "root" {
		t.Errorf("data = %v, %v, %v, want root, root and another", one.Data, two.Data, changed.Data)
	}
	if one.ManagedFields != nil {
		t.Errorf("managed fields = %v, want none", one.ManagedFields)
	}
	gone := cache.DeletedFinalStateUnknown{Key: "n/" + rootCAName}
	if obj, err := l.share(gone); err != nil || obj != any(gone) {
		t.Errorf("share() of a deleted object = %v, error %v, want it unchanged", obj, err)
	}
}

func TestRootCAFollowsBundleChanges(t *testing.T) {
	var renewed atomic.Bool
	bundle := func() []byte {
		if renewed.Load() {
			return []byte("new")
		}
		return []byte("old")
	}
	publishing(t, bundle, func(client *fake.Clientset) {
		renewed.Store(true)
		settled(2 * time.Minute)
		m, err := client.CoreV1().ConfigMaps("app").Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
		if err != nil || m.Data["ca.crt"] != "new" {
			t.Errorf("ConfigMap after the bundle changed = %v, error %v, want ca.crt new", m, err)
		}
	}, namespace("app"))
}

// A replica without known CA certificates neither publishes nor replaces any.
func TestUnknownRootCAIsNotPublished(t *testing.T) {
	others := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: rootCAName}, Data: map[string]string{rootCAKey: "of another"}}
	publishing(t, func() []byte { return nil }, func(client *fake.Clientset) {
		m, err := client.CoreV1().ConfigMaps("app").Get(t.Context(), rootCAName, metav1.GetOptions{})
		if err != nil || m.Data[rootCAKey] != "of another" {
			t.Errorf("ConfigMap = %v, error %v, want the data of another replica unchanged", m, err)
		}
		if _, err := client.CoreV1().ConfigMaps("new").Get(t.Context(), rootCAName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("Get in the other namespace: error = %v, want NotFound", err)
		}
	}, namespace("app"), namespace("new"), others)
}
