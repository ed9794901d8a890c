package coreapi

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestNamespacesEndInTwoSteps(t *testing.T) {
	h := start(t)
	client := h.typed(t, admin)
	ctx := within(t)
	namespaces := client.CoreV1().Namespaces()
	created := namespace(t, client, "work")
	if created.Status.Phase != corev1.NamespaceActive || len(created.Spec.Finalizers) != 1 ||
		created.Spec.Finalizers[0] != corev1.FinalizerKubernetes || created.Labels[corev1.LabelMetadataName] != "work" {
		t.Fatalf("created as %+v", created)
	}
	mustCreate(t, client, configMap("inside", nil))

	other := types.UID("other")
	err := namespaces.Delete(ctx, "work", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
	if !apierrors.IsConflict(err) {
		t.Fatalf("deleted under the UID of another: %v", err)
	}
	for range 2 { // the second is answered with the namespace as it is
		if err := namespaces.Delete(ctx, "work", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ending, err := namespaces.Get(ctx, "work", metav1.GetOptions{})
	if err != nil || ending.Status.Phase != corev1.NamespaceTerminating || ending.DeletionTimestamp == nil {
		t.Fatalf("got %+v, %v", ending, err)
	}

	t.Run("nothing new comes in", func(t *testing.T) {
		_, err := client.CoreV1().ConfigMaps("work").Create(ctx, configMap("late", nil), metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) || !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			t.Fatalf("got %v", err)
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
			t.Fatalf("got %+v, %v", ending, err)
		}
	})
	t.Run("its conditions can be written", func(t *testing.T) {
		ending.Status.Conditions = []corev1.NamespaceCondition{{Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionTrue}}
		if ending, err = namespaces.UpdateStatus(ctx, ending, metav1.UpdateOptions{}); err != nil || len(ending.Status.Conditions) != 1 {
			t.Fatalf("got %+v, %v", ending, err)
		}
	})
	t.Run("the write that empties both lists of finalizers removes it", func(t *testing.T) {
		ending.Spec.Finalizers = nil
		if _, err := namespaces.Finalize(ctx, ending, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := namespaces.Get(ctx, "work", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Fatalf("got %v", err)
		}
	})
}

func TestNamespacesThatAreNeeded(t *testing.T) {
	h := start(t)
	client := h.typed(t, admin)
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic} {
		namespace(t, client, name)
		if err := client.CoreV1().Namespaces().Delete(within(t), name, metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := client.CoreV1().ConfigMaps("work").Create(within(t), configMap("early", nil), metav1.CreateOptions{})
	if !apierrors.IsNotFound(err) || err.Error() != `namespaces "work" not found` {
		t.Fatalf("into a namespace that is not there: %v", err)
	}
}

func TestForegroundDeletionOfANamespaceIsRemembered(t *testing.T) {
	h := start(t)
	client := h.typed(t, admin)
	namespace(t, client, "work")
	foreground := metav1.DeletePropagationForeground
	if err := client.CoreV1().Namespaces().Delete(within(t), "work", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Fatal(err)
	}
	got, err := client.CoreV1().Namespaces().Get(within(t), "work", metav1.GetOptions{})
	if err != nil || len(got.Finalizers) != 1 || got.Finalizers[0] != metav1.FinalizerDeleteDependents {
		t.Fatalf("got %v, %v", got, err)
	}
}
