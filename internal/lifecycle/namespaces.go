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

	"portico.dev/internal/clients"
	"portico.dev/internal/lifecycle/reconcile"
)

// systemNames are the namespaces that exist in every cluster. They are recreated after a deletion.
var systemNames = []string{
	metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease,
}

// systemNamespaces creates the system namespaces.
type systemNamespaces struct {
	client     clients.Interface
	namespaces coreinformers.NamespaceInformer
	log        *zap.Logger
	election   reconcile.Election
}

// EnsureNamespaces creates the system namespaces. It must run before objects are written into them.
func EnsureNamespaces(ctx context.Context, client clients.Interface) error {
	return (&systemNamespaces{client: client}).ensure(ctx)
}

// ensure creates the missing namespaces. It reads storage, because the informers have not synced at the start.
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
	l := &reconcile.Loop{Name: "system-namespaces", Workers: 1, Election: s.election, Reconcile: s.reconcile, Resync: time.Minute, Log: s.log}
	return l.Run(ctx, reconcile.Source{Informer: s.namespaces.Informer(), Key: func(obj any) string {
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

const defaultServiceAccount = "default"

// defaultServiceAccounts maintains a ServiceAccount called default in every active namespace.
type defaultServiceAccounts struct {
	client          clients.Interface
	bootstrapClient clients.Interface // used by ensure
	namespaces      coreinformers.NamespaceInformer
	accounts        coreinformers.ServiceAccountInformer
	log             *zap.Logger
	election        reconcile.Election
}

func newDefaultServiceAccounts(cfg Config, log *zap.Logger) *defaultServiceAccounts {
	return &defaultServiceAccounts{
		client:          cfg.Client,
		bootstrapClient: cfg.BootstrapClient,
		namespaces:      cfg.Namespaces,
		accounts:        cfg.ServiceAccounts,
		log:             log,
		election:        cfg.Election,
	}
}

// ensure creates the default service accounts of the system namespaces. It reads storage, because pods need an account as soon
// as the server is ready.
func (s *defaultServiceAccounts) ensure(ctx context.Context) error {
	for _, namespace := range systemNames {
		_, err := s.bootstrapClient.CoreV1().ServiceAccounts(namespace).Get(ctx, defaultServiceAccount, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			err = createAccount(ctx, s.bootstrapClient, namespace)
		}
		if err != nil {
			return fmt.Errorf("the default service account of namespace %s: %w", namespace, err)
		}
	}
	return nil
}

func createAccount(ctx context.Context, client clients.Interface, namespace string) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: defaultServiceAccount, Namespace: namespace}}
	_, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) && !reconcile.IsNamespaceGone(err) {
		return err
	}
	return nil
}

func (s *defaultServiceAccounts) run(ctx context.Context) error {
	l := &reconcile.Loop{Name: "default-serviceaccounts", Workers: 2, Election: s.election, Reconcile: s.reconcile, Log: s.log}
	return l.Run(ctx,
		reconcile.Source{Informer: s.namespaces.Informer(), Key: reconcile.NameOf},
		reconcile.Source{Informer: s.accounts.Informer(), Key: func(obj any) string {
			if reconcile.NameOf(obj) != defaultServiceAccount {
				return ""
			}
			return reconcile.NamespaceOf(obj)
		}})
}

func (s *defaultServiceAccounts) reconcile(ctx context.Context, namespace string) (time.Duration, error) {
	if !reconcile.Active(s.namespaces, namespace) {
		return 0, nil
	}
	if _, there, err := s.accounts.Informer().GetIndexer().GetByKey(namespace + "/" + defaultServiceAccount); there || err != nil {
		return 0, err
	}
	if err := createAccount(ctx, s.client, namespace); err != nil {
		return 0, fmt.Errorf("create the default service account: %w", err)
	}
	return 0, nil
}
