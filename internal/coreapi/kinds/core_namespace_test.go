package kinds_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestNamespaces(t *testing.T) {
	kindtest.Refuses(t, []kindtest.Create{
		{"a name with a dot", kindtest.Decode[corev1.Namespace](t, "metadata: {name: a.b}"),
			[]string{`metadata.name: Invalid value: "a.b": must not contain dots`}},
		{"a finalizer that nobody owns", kindtest.Decode[corev1.Namespace](t, "metadata: {name: a}\nspec: {finalizers: [mine]}"),
			[]string{`spec.finalizers: Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified`}},
		{"the same on the object", kindtest.Decode[corev1.Namespace](t, "metadata: {name: a, finalizers: [mine, example.com/f]}"),
			[]string{`metadata.finalizers[0]: Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified`}},
	})
	deleting := kindtest.Decode[corev1.Namespace](t, "metadata: {name: a, resourceVersion: '1'}\nspec: {finalizers: [kubernetes]}")
	deleting.DeletionTimestamp = ptr.To(metav1.Unix(100, 0))
	revived := deleting.DeepCopy()
	revived.Status.Phase = corev1.NamespaceActive
	kindtest.Refused(t, kindtest.StatusErrors(revived, deleting),
		"status.Phase: Invalid value: \"Active\": may only be 'Terminating' if `deletionTimestamp` is not empty")

	active := kindtest.Decode[corev1.Namespace](t, "metadata: {name: a, resourceVersion: '1'}")
	terminating := active.DeepCopy()
	terminating.Status.Phase = corev1.NamespaceTerminating
	kindtest.Refused(t, kindtest.StatusErrors(terminating, active),
		"status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty")
}
