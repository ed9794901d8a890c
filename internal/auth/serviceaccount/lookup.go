package serviceaccount

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
)

// LiveLookup is a Lookup with informers. Objects that the informers do not have are read from the API once, because a
// token is often used immediately after its service account or pod is created.
type LiveLookup struct {
	ServiceAccounts corev1listers.ServiceAccountLister
	Pods            corev1listers.PodLister
	Secrets         corev1listers.SecretLister
	Nodes           corev1listers.NodeLister
	// Client reads from the API. Its credential must not be a token that this package verifies.
	Client corev1client.CoreV1Interface
}

// liveTimeout limits a read from the API, for which a request's authentication waits.
const liveTimeout = 5 * time.Second

var _ Lookup = LiveLookup{}

// GetServiceAccount implements [Lookup].
func (l LiveLookup) GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	return cachedOr(ctx, l.ServiceAccounts.ServiceAccounts(namespace).Get, l.Client.ServiceAccounts(namespace).Get, name)
}

// GetPod implements [Lookup].
func (l LiveLookup) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return cachedOr(ctx, l.Pods.Pods(namespace).Get, l.Client.Pods(namespace).Get, name)
}

// GetSecret implements [Lookup].
func (l LiveLookup) GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return cachedOr(ctx, l.Secrets.Secrets(namespace).Get, l.Client.Secrets(namespace).Get, name)
}

// GetNode implements [Lookup].
func (l LiveLookup) GetNode(ctx context.Context, name string) (*corev1.Node, error) {
	return cachedOr(ctx, l.Nodes.Get, l.Client.Nodes().Get, name)
}

func cachedOr[T any](
	ctx context.Context,
	cached func(name string) (*T, error),
	live func(ctx context.Context, name string, o metav1.GetOptions) (*T, error),
	name string,
) (*T, error) {
	object, err := cached(name)
	if !apierrors.IsNotFound(err) {
		return object, err
	}
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	return live(ctx, name, metav1.GetOptions{})
}
