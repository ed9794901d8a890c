package core

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/coreapi/columns"
)

func orUnset[T ~string](value *T) string {
	if value == nil {
		return columns.Unset
	}
	return string(*value)
}

func volumePhase(phase string, object interface{ GetDeletionTimestamp() *metav1.Time }) string {
	if object.GetDeletionTimestamp() != nil {
		return "Terminating"
	}
	return phase
}

// classOf prefers the annotation that preceded the field, as controllers do.
func classOf(annotations map[string]string, class *string) string {
	if old, set := annotations[corev1.BetaStorageClassAnnotation]; set {
		return old
	}
	if class == nil {
		return ""
	}
	return *class
}

func shortModes(modes []corev1.PersistentVolumeAccessMode) string {
	var short []string
	for _, mode := range []struct {
		mode  corev1.PersistentVolumeAccessMode
		short string
	}{
		{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"}, {corev1.ReadWriteMany, "RWX"}, {corev1.ReadWriteOncePod, "RWOP"},
	} {
		if slices.Contains(modes, mode.mode) {
			short = append(short, mode.short)
		}
	}
	return strings.Join(short, ",")
}
