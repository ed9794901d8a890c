package coreapi

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/warning"

	"portico.dev/internal/coreapi/validate"
)

// fieldsFromAppArmor gives containers the profiles that annotations from before the field name for them: kubelets read
// only the field.
func fieldsFromAppArmor(ctx context.Context, obj runtime.Object) {
	pod := obj.(*corev1.Pod)
	if pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows {
		return
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			if c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
				continue
			}
			key := corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + c.Name
			annotation, annotated := pod.Annotations[key]
			if !annotated {
				continue
			}
			profile := appArmorOf(annotation)
			whole := pod.Spec.SecurityContext
			if profile != nil && whole != nil && apiequality.Semantic.DeepEqual(whole.AppArmorProfile, profile) {
				continue
			}
			if profile != nil {
				if c.SecurityContext == nil {
					c.SecurityContext = &corev1.SecurityContext{}
				}
				c.SecurityContext.AppArmorProfile = profile
			}
			warning.AddWarning(ctx, "", fmt.Sprintf(`metadata.annotations[%s]: deprecated since v1.30; use the "appArmorProfile" field instead`, key))
		}
	}
}

// appArmorOf is what an annotation says. Nil: nothing that a field could say.
func appArmorOf(annotation string) *corev1.AppArmorProfile {
	switch local, isLocal := strings.CutPrefix(annotation, corev1.DeprecatedAppArmorBetaProfileNamePrefix); {
	case annotation == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case annotation == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case isLocal:
		profile := &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &local}
		if len(validate.AppArmor(profile, nil)) == 0 {
			return profile
		}
	}
	return nil
}
