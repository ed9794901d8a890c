package plugins

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

// defaultSeconds limits how long a pod stays on a node that is not ready or not reachable. It is upstream's default.
const defaultSeconds int64 = 300

// defaultTolerationSeconds adds the tolerations with which a pod survives a short failure of its node.
type defaultTolerationSeconds struct{}

var _ admission.MutationInterface = defaultTolerationSeconds{}

func (defaultTolerationSeconds) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Update
}

func (defaultTolerationSeconds) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || a.GetResource().GroupResource() != corev1.Resource("pods") || a.GetSubresource() != "" {
		return nil
	}
	given := pod.Spec.Tolerations
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		if tolerates(given, taint) {
			continue
		}
		wait := defaultSeconds
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &wait,
		})
	}
	return nil
}

// tolerates compares key and effect only, as upstream does.
func tolerates(given []corev1.Toleration, taint string) bool {
	return slices.ContainsFunc(given, func(t corev1.Toleration) bool {
		return (t.Key == taint || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
	})
}
