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
	// descriptionAnnotation equals the annotation of kube-controller-manager's publisher. Both may run, and must not undo each
	// other's writes.
	descriptionAnnotation = "kubernetes.io/description"
	rootCADescription     = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as " +
		"the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."
)

// RootCAPublisher maintains a ConfigMap kube-root-ca.crt in every active namespace, and reverts changes to it. Workloads mount
// it next to their token to verify the server before they send the token.
type RootCAPublisher struct {
	client     clients.Interface
	namespaces coreinformers.NamespaceInformer
	published  cache.SharedIndexInformer
	bundle     func() []byte
	log        *zap.Logger
	election   reconcile.Election
}

// NewRootCAPublisher returns a RootCAPublisher that is idle until Run.
func NewRootCAPublisher(client clients.Interface, namespaces coreinformers.NamespaceInformer, bundle func() []byte, election reconcile.Election, log *zap.Logger) *RootCAPublisher {
	p := &RootCAPublisher{
		client:     client,
		namespaces: namespaces,
		published:  reconcile.NewInformer(client, client.CoreV1().ConfigMaps(metav1.NamespaceAll), &corev1.ConfigMap{}, rootCAName),
		bundle:     bundle,
		log:        log,
		election:   election,
	}
	_ = p.published.SetTransform((&latestMaps{}).share) // fails only if the informer is running
	return p
}

// latestMaps shares the content between the ConfigMaps of all namespaces. It is identical unless a ConfigMap was modified.
type latestMaps struct {
	mu                sync.Mutex // guards the fields below
	data, annotations map[string]string
}

// share is the transform of the informer. Its results are not changed afterwards.
func (l *latestMaps) share(obj any) (any, error) {
	obj, err := reconcile.WithoutManagedFields(obj)
	if c, ok := obj.(*corev1.ConfigMap); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		c.Data, c.Annotations = latest(&l.data, c.Data), latest(&l.annotations, c.Annotations)
	}
	return obj, err
}

// latest returns the latest map if m equals it. Otherwise it makes m the latest and returns it.
func latest(known *map[string]string, m map[string]string) map[string]string {
	if !maps.Equal(*known, m) {
		*known = m
	}
	return *known
}

// Run publishes until ctx ends.
func (p *RootCAPublisher) Run(ctx context.Context) error {
	// The bundle may be replaced at run time. The resync detects it within a minute.
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
	if len(bundle) == 0 { // the bundle is unknown; data published by other replicas is kept
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
	// The data is replaced as a whole, as in kube-controller-manager, because only this server may publish it.
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
