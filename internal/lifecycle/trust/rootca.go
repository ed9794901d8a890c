package trust

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	"portico.dev/internal/clients"
	"portico.dev/internal/lifecycle/reconcile"
)

const (
	rootCAName = "kube-root-ca.crt"
	rootCAKey  = "ca.crt"
	// descriptionAnnotation is what upstream's publisher writes too. Both may run: neither may undo the other.
	descriptionAnnotation = "kubernetes.io/description"
	rootCADescription     = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as " +
		"the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."
)

// RootCAPublisher keeps a ConfigMap kube-root-ca.crt in every active namespace, and reverts changes to it.
// Workloads mount it beside their token to know whom to send the token to.
type RootCAPublisher struct {
	client     clients.Interface
	namespaces coreinformers.NamespaceInformer
	published  cache.SharedIndexInformer
	bundle     func() []byte
	log        *zap.Logger
	election   reconcile.Election
}

// NewRootCAPublisher makes a RootCAPublisher that does nothing until Run.
func NewRootCAPublisher(client clients.Interface, namespaces coreinformers.NamespaceInformer, bundle func() []byte, election reconcile.Election, log *zap.Logger) *RootCAPublisher {
	p := &RootCAPublisher{
		client:     client,
		namespaces: namespaces,
		published:  reconcile.NewInformer(client, client.CoreV1().ConfigMaps(metav1.NamespaceAll), &corev1.ConfigMap{}, rootCAName),
		bundle:     bundle,
		log:        log,
		election:   election,
	}
	_ = p.published.SetTransform((&latestMaps{}).share) // fails only for an informer that runs already
	return p
}

// latestMaps lets the ConfigMaps of all namespaces share their content, which is the same but for those that somebody has changed.
type latestMaps struct {
	mu                sync.Mutex // guards what follows
	data, annotations map[string]string
}

// share is the transform of the informer. What it has returned is not changed any more.
func (l *latestMaps) share(obj any) (any, error) {
	obj, err := reconcile.WithoutManagedFields(obj)
	if c, ok := obj.(*corev1.ConfigMap); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		c.Data, c.Annotations = latest(&l.data, c.Data), latest(&l.annotations, c.Annotations)
	}
	return obj, err
}

// latest returns the latest map if m equals it, and makes m the latest otherwise.
func latest(known *map[string]string, m map[string]string) map[string]string {
	if !maps.Equal(*known, m) {
		*known = m
	}
	return *known
}

// Run publishes until ctx ends.
func (p *RootCAPublisher) Run(ctx context.Context) error {
	// The bundle may be replaced while we run; every minute finds that.
	l := &reconcile.Loop{Name: "root-ca", Workers: 2, Election: p.election, Reconcile: p.reconcile, Resync: time.Minute, Log: p.log}
	return l.Run(ctx,
		reconcile.Source{Informer: p.namespaces.Informer(), Key: reconcile.NameOf},
		reconcile.Source{Informer: p.published, Key: reconcile.NamespaceOf, Owned: true})
}

func (p *RootCAPublisher) reconcile(ctx context.Context, namespace string) (time.Duration, error) {
	if !reconcile.Active(p.namespaces, namespace) {
		return 0, nil
	}
	bundle := p.bundle()
	if len(bundle) == 0 { // it is not known; what others have published stays
		return 0, nil
	}
	want := map[string]string{rootCAKey: string(bundle)}
	obj, there, err := p.published.GetIndexer().GetByKey(namespace + "/" + rootCAName)
	if err != nil {
		return 0, err
	}
	configMaps := p.client.CoreV1().ConfigMaps(namespace)
	if !there {
		_, err := configMaps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: rootCAName, Namespace: namespace, Annotations: map[string]string{descriptionAnnotation: rootCADescription},
			},
			Data: want,
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) && !reconcile.IsNamespaceGone(err) {
			return 0, fmt.Errorf("create configmap %s: %w", rootCAName, err)
		}
		return 0, nil
	}
	// The data is replaced as a whole, as upstream does: it is a statement of this server, nobody else may add to it.
	current := obj.(*corev1.ConfigMap)
	described := current.Annotations[descriptionAnnotation] != ""
	if maps.Equal(current.Data, want) && len(current.BinaryData) == 0 && described {
		return 0, nil
	}
	updated := current.DeepCopy()
	updated.Data, updated.BinaryData = want, nil
	if !described {
		metav1.SetMetaDataAnnotation(&updated.ObjectMeta, descriptionAnnotation, rootCADescription)
	}
	_, err = configMaps.Update(ctx, updated, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return 0, fmt.Errorf("update configmap %s: %w", rootCAName, err)
	}
	return 0, nil
}
