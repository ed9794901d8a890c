package core

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestInvalidNamespaceFinalizersAreRejected(t *testing.T) {
	deleting := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1", DeletionTimestamp: ptr.To(metav1.Unix(100, 0))},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes"}},
	}
	emptied, renamed := deleting.DeepCopy(), deleting.DeepCopy()
	emptied.Spec.Finalizers = nil
	if errs := validateFinalize(emptied, deleting); len(errs) > 0 {
		t.Errorf("validateFinalize without finalizers = %v, want no error", errs)
	}
	renamed.Spec.Finalizers = []corev1.FinalizerName{"kubernetes", "bad name/x"}
	errs := validateFinalize(renamed, deleting)
	if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), `spec.finalizers[1]: Invalid value: "bad name/x": prefix part`) {
		t.Errorf("validateFinalize with the finalizer \"bad name/x\" = %v, want one error for spec.finalizers[1]", errs)
	}
}
