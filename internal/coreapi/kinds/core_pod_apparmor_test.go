package kinds_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/coreapi/kinds/core"
)

func TestAppArmorAnnotationsBecomeFields(t *testing.T) {
	for situation, c := range map[string]struct {
		annotation, spec string
		want             corev1.AppArmorProfileType
	}{
		"the runtime's own":         {"runtime/default", "containers: [{name: c}]", corev1.AppArmorProfileTypeRuntimeDefault},
		"one of the node":           {"localhost/x", "containers: [{name: c}]", corev1.AppArmorProfileTypeLocalhost},
		"none at all":               {"unconfined", "containers: [{name: c}]", corev1.AppArmorProfileTypeUnconfined},
		"a field is there already":  {"unconfined", "containers: [{name: c, securityContext: {appArmorProfile: {type: RuntimeDefault}}}]", corev1.AppArmorProfileTypeRuntimeDefault},
		"the pod says the same":     {"unconfined", "securityContext: {appArmorProfile: {type: Unconfined}}, containers: [{name: c}]", ""},
		"Windows has none":          {"unconfined", "os: {name: windows}, containers: [{name: c}]", ""},
		"nonsense":                  {"nonsense", "containers: [{name: c}]", ""},
		"one of no name":            {"localhost/", "containers: [{name: c}]", ""},
		"a name that none can have": {"localhost/ x", "containers: [{name: c}]", ""},
	} {
		t.Run(situation, func(t *testing.T) {
			pod := &corev1.Pod{}
			if err := yaml.UnmarshalStrict([]byte("spec: {"+c.spec+"}"), pod); err != nil {
				t.Fatal(err)
			}
			pod.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/c": c.annotation}
			core.FieldsFromAppArmor(t.Context(), pod)
			var got corev1.AppArmorProfileType
			if s := pod.Spec.Containers[0].SecurityContext; s != nil && s.AppArmorProfile != nil {
				got = s.AppArmorProfile.Type
			}
			if got != c.want {
				t.Errorf("AppArmor profile of the container = %q, want %q", got, c.want)
			}
		})
	}
}
