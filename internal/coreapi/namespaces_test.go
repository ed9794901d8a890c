package coreapi

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestNamespaceDeletionWaitsForFinalizer(t *testing.T) {
	h := start(t)
	client := h.typed(t, admin)
	ctx := within(t)
	namespaces := client.CoreV1().Namespaces()
	created := namespace(t, client, "work")
	if created.Status.Phase != corev1.NamespaceActive || len(created.Spec.Finalizers) != 1 ||
		created.Spec.Finalizers[0] != corev1.FinalizerKubernetes || created.Labels[corev1.LabelMetadataName] != "work" {
		t.Fatalf("created namespace = %+v, want the phase Active, the finalizer kubernetes and the name label", created)
	}
	mustCreate(t, client, configMap("inside", nil))

	other := types.UID("other")
	err := namespaces.Delete(ctx, "work", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
	if !apierrors.IsConflict(err) {
		t.Fatalf("delete with the UID of another namespace: error = %v, want Conflict", err)
	}
	for range 2 { // the second response has the unchanged namespace
		if err := namespaces.Delete(ctx, "work", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ending, err := namespaces.Get(ctx, "work", metav1.GetOptions{})
	if err != nil || ending.Status.Phase != corev1.NamespaceTerminating || ending.DeletionTimestamp == nil {
		t.Fatalf("namespace after the delete = %+v, %v, want the phase Terminating and a deletionTimestamp", ending, err)
	}

	t.Run("nothing new comes in", func(t *testing.T) {
		_, err := client.CoreV1().ConfigMaps("work").Create(ctx, configMap("late", nil), metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) || !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			t.Fatalf("create in a terminating namespace: error = %v, want Forbidden with the cause NamespaceTerminating", err)
		}
	})
	t.Run("what is there can still be changed and deleted", func(t *testing.T) {
		if _, err := client.CoreV1().ConfigMaps("work").Update(ctx, configMap("inside", map[string]string{"k": "v"}), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := client.CoreV1().ConfigMaps("work").Delete(ctx, "inside", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("an update does not touch the finalizers", func(t *testing.T) {
		changed := ending.DeepCopy()
		changed.Spec.Finalizers = nil
		if ending, err = namespaces.Update(ctx, changed, metav1.UpdateOptions{}); err != nil || len(ending.Spec.Finalizers) != 1 {
			t.Fatalf("update without finalizers = %+v, %v, want one finalizer", ending, err)
		}
	})
	t.Run("its conditions can be written", func(t *testing.T) {
		ending.Status.Conditions = []corev1.NamespaceCondition{{Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionTrue}}
		if ending, err = namespaces.UpdateStatus(ctx, ending, metav1.UpdateOptions{}); err != nil || len(ending.Status.Conditions) != 1 {
			t.Fatalf("update of the conditions = %+v, %v, want one condition", ending, err)
		}
	})
	t.Run("the write that empties both lists of finalizers removes it", func(t *testing.T) {
		ending.Spec.Finalizers = nil
		if _, err := namespaces.Finalize(ctx, ending, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := namespaces.Get(ctx, "work", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Fatalf("GET of the finalized namespace: error = %v, want NotFound", err)
		}
	})
}

func TestSystemNamespacesCannotBeDeleted(t *testing.T) {
	h := start(t)
	client := h.typed(t, admin)
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic} {
		namespace(t, client, name)
		if err := client.CoreV1().Namespaces().Delete(within(t), name, metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("delete of the namespace %s: error = %v, want Forbidden", name, err)
		}
	}
	_, err := client.CoreV1().ConfigMaps("work").Create(within(t), configMap("early", nil), metav1.CreateOptions{})
	if !apierrors.IsNotFound(err) || err.Error() != `namespaces "work" not found` {
		t.Fatalf("create in a missing namespace: error = %v, want NotFound", err)
	}
}

func TestForegroundNamespaceDeletionAddsFinalizer(t *testing.T) {
	h := start(t)
	client := h.typed(t, admin)
	namespace(t, client, "work")
	foreground := metav1.DeletePropagationForeground
	if err := client.CoreV1().Namespaces().Delete(within(t), "work", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Fatal(err)
	}
	got, err := client.CoreV1().Namespaces().Get(within(t), "work", metav1.GetOptions{})
	if err != nil || len(got.Finalizers) != 1 || got.Finalizers[0] != metav1.FinalizerDeleteDependents {
		t.Fatalf("namespace after a foreground deletion = %v, %v, want the finalizer foregroundDeletion", got, err)
	}
}
