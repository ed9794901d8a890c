package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
)

// systemNames exist in every cluster, and come back when they are deleted.
var systemNames = []string{
	metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease,
}

// systemNamespaces creates the namespaces every cluster has.
type systemNamespaces struct {
	client     kubernetes.Interface
	namespaces coreinformers.NamespaceInformer
	log        *zap.Logger
	election   election
}

func newSystemNamespaces(client kubernetes.Interface, namespaces coreinformers.NamespaceInformer, log *zap.Logger) *systemNamespaces {
	return &systemNamespaces{client: client, namespaces: namespaces, log: log}
}

// EnsureNamespaces creates the namespaces every cluster has, before anything is written that lives in one of them.
func EnsureNamespaces(ctx context.Context, client kubernetes.Interface) error {
	return (&systemNamespaces{client: client}).ensure(ctx)
}

// ensure creates those that are missing, asking storage: at the start no informer has anything yet.
func (s *systemNamespaces) ensure(ctx context.Context) error {
	for _, name := range systemNames {
		if _, err := s.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			if err != nil {
				return fmt.Errorf("get namespace %s: %w", name, err)
			}
			continue
		}
		if err := s.create(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (s *systemNamespaces) create(ctx context.Context, name string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := s.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return nil
}

func (s *systemNamespaces) run(ctx context.Context) error {
	l := &loop{name: "system-namespaces", workers: 1, election: s.election, reconcile: s.reconcile, every: time.Minute, log: s.log}
	return l.run(ctx, source{informer: s.namespaces.Informer(), namespace: func(obj any) string {
		if ns, ok := obj.(*corev1.Namespace); ok && slices.Contains(systemNames, ns.Name) {
			return ns.Name
		}
		return ""
	}})
}

func (s *systemNamespaces) reconcile(ctx context.Context, name string) (time.Duration, error) {
	if _, err := s.namespaces.Lister().Get(name); !apierrors.IsNotFound(err) {
		return 0, err
	}
	return 0, s.create(ctx, name)
}
