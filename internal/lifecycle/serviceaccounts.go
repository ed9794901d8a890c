package lifecycle

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

const defaultServiceAccount = "default"

// defaultServiceAccounts keeps a ServiceAccount called default in every active namespace.
type defaultServiceAccounts struct {
	client     kubernetes.Interface
	founding   kubernetes.Interface // for ensure
	namespaces coreinformers.NamespaceInformer
	accounts   cache.SharedIndexInformer
	log        *zap.Logger
	election   election
}

func newDefaultServiceAccounts(client, founding kubernetes.Interface, namespaces coreinformers.NamespaceInformer, log *zap.Logger) *defaultServiceAccounts {
	return &defaultServiceAccounts{
		client:     client,
		founding:   founding,
		namespaces: namespaces,
		// One object of each namespace, not every account of the cluster.
		accounts: coreinformers.NewFilteredServiceAccountInformer(client, metav1.NamespaceAll, 0, byNamespace, named(defaultServiceAccount)),
		log:      log,
	}
}

// ensure creates those of the system namespaces, asking storage. Pods need one, so that whoever is told that the server is
// ready may need one at once.
func (s *defaultServiceAccounts) ensure(ctx context.Context) error {
	for _, namespace := range systemNames {
		_, err := s.founding.CoreV1().ServiceAccounts(namespace).Get(ctx, defaultServiceAccount, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			err = createAccount(ctx, s.founding, namespace)
		}
		if err != nil {
			return fmt.Errorf("the default service account of namespace %s: %w", namespace, err)
		}
	}
	return nil
}

func createAccount(ctx context.Context, client kubernetes.Interface, namespace string) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: defaultServiceAccount, Namespace: namespace}}
	_, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) && !leaving(err) {
		return err
	}
	return nil
}

func (s *defaultServiceAccounts) run(ctx context.Context) error {
	l := &loop{name: "default-serviceaccounts", workers: 2, election: s.election, reconcile: s.reconcile, log: s.log}
	return l.run(ctx,
		source{informer: s.namespaces.Informer(), namespace: nameOf},
		source{informer: s.accounts, namespace: namespaceOf, owned: true})
}

func (s *defaultServiceAccounts) reconcile(ctx context.Context, namespace string) (time.Duration, error) {
	if !active(s.namespaces, namespace) {
		return 0, nil
	}
	if _, there, err := s.accounts.GetIndexer().GetByKey(namespace + "/" + defaultServiceAccount); there || err != nil {
		return 0, err
	}
	if err := createAccount(ctx, s.client, namespace); err != nil {
		return 0, fmt.Errorf("create the default service account: %w", err)
	}
	return 0, nil
}
