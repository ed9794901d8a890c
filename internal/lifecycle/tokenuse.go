package lifecycle

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"portico.dev/internal/clients"
	"portico.dev/internal/lifecycle/reconcile"
	"portico.dev/internal/run"
)

// Names from KEP-2799, used by kube-controller-manager's cleaner.
const (
	lastUsedLabel  = "kubernetes.io/legacy-token-last-used"
	trackingName   = "kube-apiserver-legacy-service-account-token-tracking"
	trackingSince  = "since"
	dayFormat      = time.DateOnly
	usesAtOnce     = 256
	rememberedUses = 4096
	// useAgain is the pause before a Secret is retried after its label could not be written.
	useAgain = 10 * time.Minute
)

// tokenUse records the day on which the token of a Secret was last used, and the day on which recording started. Controllers
// that remove unused tokens need both. It runs in every replica, because each replica handles different requests. The start of
// the recording is written once. If it is deleted, no tokens are removed until the next start.
type tokenUse struct {
	client clients.Interface
	used   chan use
	noted  *lru.Cache[types.UID, time.Time]
	log    *zap.Logger
}

type use struct {
	types.NamespacedName
	uid types.UID
}

func newTokenUse(client clients.Interface, log *zap.Logger) *tokenUse {
	noted, _ := lru.New[types.UID, time.Time](rememberedUses) // fails only for a size that is not positive
	return &tokenUse{client: client, used: make(chan use, usesAtOnce), noted: noted, log: log}
}

// note does not block, because a request waits for it. A use that does not fit into the queue is recorded the next time.
func (u *tokenUse) note(s *corev1.Secret) {
	now := time.Now().UTC()
	day := now.Format(dayFormat)
	switch s.Labels[lastUsedLabel] {
	case day, now.AddDate(0, 0, 1).Format(dayFormat): // a replica with a fast clock wrote tomorrow's date: days never decrease
		return
	}
	if at, ok := u.noted.Get(s.UID); ok && now.Sub(at) < useAgain && at.Format(dayFormat) == day {
		return
	}
	select {
	case u.used <- use{types.NamespacedName{Namespace: s.Namespace, Name: s.Name}, s.UID}:
		u.noted.Add(s.UID, now)
	default:
	}
}

// run blocks until ctx ends.
func (u *tokenUse) run(ctx context.Context) error {
	for {
		err := u.publish(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			break
		}
		u.log.Warn("failed to record the start of token usage tracking; retrying", zap.Error(err))
		if !run.Pause(ctx, useAgain/10) {
			return nil
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case one := <-u.used:
			if err := u.write(ctx, one); err != nil && ctx.Err() == nil {
				u.log.Warn("failed to record the use of a token", zap.Stringer("secret", one.NamespacedName), zap.Error(err))
			}
		}
	}
}

// publish writes the day on which recording started, unless it is already written.
func (u *tokenUse) publish(ctx context.Context) error {
	maps, today := u.client.CoreV1().ConfigMaps(metav1.NamespaceSystem), time.Now().UTC().Format(dayFormat)
	current, err := maps.Get(ctx, trackingName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err := maps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: trackingName}, Data: map[string]string{trackingSince: today},
		}, metav1.CreateOptions{})
		if err := reconcile.Ignoring(err, apierrors.IsAlreadyExists); err != nil {
			return fmt.Errorf("create configmap %s: %w", trackingName, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("get configmap %s: %w", trackingName, err)
	}
	if _, err := time.Parse(dayFormat, current.Data[trackingSince]); err == nil {
		return nil
	}
	updated := current.DeepCopy()
	updated.Data = map[string]string{trackingSince: today}
	_, err = maps.Update(ctx, updated, metav1.UpdateOptions{})
	if err := reconcile.Ignoring(err, apierrors.IsConflict); err != nil { // another replica repaired it
		return fmt.Errorf("update configmap %s: %w", trackingName, err)
	}
	return nil
}

// write uses the current day, because the use may have been queued past midnight, and a later use may already be written.
func (u *tokenUse) write(ctx context.Context, one use) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": one.uid, "labels": map[string]string{lastUsedLabel: time.Now().UTC().Format(dayFormat)}, // with the UID, because another Secret of the same name was not used
	}})
	if err != nil {
		return err
	}
	_, err = u.client.CoreV1().Secrets(one.Namespace).Patch(ctx, one.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return reconcile.Ignoring(reconcile.Ignoring(err, reconcile.IsOutdated), isReplaced)
}

// isReplaced reports whether a patch was refused because the object has another UID. This is an Invalid error and not a
// conflict. An admission policy that refuses the label also returns Invalid, which is worth a warning.
func isReplaced(err error) bool {
	cause, ok := apierrors.StatusCause(err, metav1.CauseTypeFieldValueInvalid)
	return ok && apierrors.IsInvalid(err) && cause.Field == "metadata.uid"
}
