package plugins

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

func TestPodsGetDefaultTolerations(t *testing.T) {
	wait := int64(300)
	notReady := corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &wait}
	unreachable := corev1.Toleration{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &wait}
	other := corev1.Toleration{Key: "other", Effect: corev1.TaintEffectNoExecute}
	own := corev1.Toleration{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}
	schedule := corev1.Toleration{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	for name, c := range map[string]struct{ given, want []corev1.Toleration }{
		"none":                 {nil, []corev1.Toleration{notReady, unreachable}},
		"another":              {[]corev1.Toleration{other}, []corev1.Toleration{other, notReady, unreachable}},
		"one of the two":       {[]corev1.Toleration{own}, []corev1.Toleration{own, unreachable}},
		"of another effect":    {[]corev1.Toleration{schedule}, []corev1.Toleration{schedule, notReady, unreachable}},
		"everything":           {[]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}},
		"both, a second round": {[]corev1.Toleration{notReady, unreachable}, []corev1.Toleration{notReady, unreachable}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: c.given}}
			a := admission.NewAttributesRecord(pod, nil, corev1.SchemeGroupVersion.WithKind("Pod"), "ns", "p",
				corev1.SchemeGroupVersion.WithResource("pods"), "", admission.Create, nil, false, nil)
			if err := (defaultTolerationSeconds{}).Admit(t.Context(), a, nil); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, pod.Spec.Tolerations); diff != "" {
				t.Errorf("tolerations differ, want no difference: %s", diff)
			}
		})
	}
}
