package lifecycle

import (
	"context"
	"testing"

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
	"k8s.io/client-go/metadata"

	"portico.dev/internal/clients/clientstest"
	"portico.dev/internal/lifecycle/debts"
	"portico.dev/internal/lifecycle/namespaces"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// env is an API server in memory.
type env struct {
	t        *testing.T
	client   *fake.Clientset
	informer informers.SharedInformerFactory
}

func newEnv(t *testing.T, objects ...runtime.Object) *env {
	client := clientstest.NewClientset(objects...)
	return &env{t: t, client: client, informer: informers.NewSharedInformerFactory(client, 0)}
}

func (w *env) config() Config {
	log := zaptest.NewLogger(w.t)
	return Config{
		Client: w.client, Namespaces: w.informer.Core().V1().Namespaces(), ServiceAccounts: w.informer.Core().V1().ServiceAccounts(),
		Finalization: namespaces.Config{
			Metadata: emptyMetadata{}, Debts: debts.NewStore(nil, log), Probe: func(string) {},
			Served: func() []namespaces.GroupVersion {
				return []namespaces.GroupVersion{{
					GroupVersion: schema.GroupVersion{Version: "v1"}, Known: true, Current: true,
					Resources: []namespaces.Resource{{Name: "configmaps", List: true, DeleteCollection: true}},
				}}
			},
		},
		RootCA: func() []byte { return []byte("root") },
		Logger: log,
	}
}

// emptyMetadata has no objects.
type emptyMetadata struct{ metadata.ResourceInterface }

func (m emptyMetadata) Resource(schema.GroupVersionResource) metadata.Getter { return m }
func (m emptyMetadata) Namespace(string) metadata.ResourceInterface          { return m }
func (m emptyMetadata) List(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	return &metav1.PartialObjectMetadataList{}, nil
}
func (m emptyMetadata) DeleteCollection(context.Context, metav1.DeleteOptions, metav1.ListOptions) error {
	return nil
}

func terminating(name string, uid types.UID) *corev1.Namespace {
	now := metav1.Now()
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, DeletionTimestamp: &now},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	}
}

// gone reports whether a namespace does not exist, or no longer has a finalizer.
func (w *env) gone(name string) bool {
	ns, err := w.client.CoreV1().Namespaces().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
	return err != nil || ns.DeletionTimestamp != nil && len(ns.Spec.Finalizers) == 0
}
