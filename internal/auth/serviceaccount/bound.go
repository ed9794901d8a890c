package serviceaccount

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Lookup finds the live objects that tokens depend on. Each method returns the object, or an error that
// apierrors.IsNotFound recognises when there is none; any other error makes the token fail for now. Objects are not
// changed by the caller. An answer may lag behind the store by as much as a revoked token may live on.
type Lookup interface {
	GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error)
	GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	GetNode(ctx context.Context, name string) (*corev1.Node, error)
}

// deletionGrace is how long after the end of an object's own grace period its tokens still work, so that a pod can
// finish its last calls while it is being torn down (kubernetes/kubernetes#122568).
const deletionGrace = time.Minute

// checkBound reports why the token of k no longer holds: its service account or the object it is bound to is gone, is
// another one by the same name, or has been going for too long.
func (t *Tokens) checkBound(ctx context.Context, k *kubernetes) error {
	account, err := t.lookup.GetServiceAccount(ctx, k.Namespace, k.ServiceAccount.Name)
	if err != nil {
		return fmt.Errorf("look up its service account: %w", err)
	}
	if err := sameAndAlive("service account", &account.ObjectMeta, k.ServiceAccount); err != nil {
		return err
	}
	if k.Secret != nil {
		secret, err := t.lookup.GetSecret(ctx, k.Namespace, k.Secret.Name)
		if err != nil {
			return fmt.Errorf("look up the secret it is bound to: %w", err)
		}
		if err := sameAndAlive("secret", &secret.ObjectMeta, *k.Secret); err != nil {
			return err
		}
	}
	if k.Pod != nil {
		pod, err := t.lookup.GetPod(ctx, k.Namespace, k.Pod.Name)
		if err != nil {
			return fmt.Errorf("look up the pod it is bound to: %w", err)
		}
		// The node of a pod-bound token only says where the pod ran; the pod is what the token lives and dies with.
		return sameAndAlive("pod", &pod.ObjectMeta, *k.Pod)
	}
	if k.Node != nil {
		node, err := t.lookup.GetNode(ctx, k.Node.Name)
		if err != nil {
			return fmt.Errorf("look up the node it is bound to: %w", err)
		}
		return sameAndAlive("node", &node.ObjectMeta, *k.Node)
	}
	return nil
}

func sameAndAlive(what string, live *metav1.ObjectMeta, want ref) error {
	if string(live.UID) != want.UID {
		return fmt.Errorf("the %s %q it was issued for is gone; there is another one by that name", what, want.Name)
	}
	if d := live.DeletionTimestamp; d != nil && time.Since(d.Time) > deletionGrace {
		return fmt.Errorf("the %s %q it was issued for is being deleted", what, want.Name)
	}
	return nil
}
