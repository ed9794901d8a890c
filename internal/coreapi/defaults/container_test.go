package defaults

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestPullPolicy(t *testing.T) {
	for image, want := range map[string]corev1.PullPolicy{
		"busybox":                      corev1.PullAlways,
		"busybox:latest":               corev1.PullAlways,
		"busybox:1.36":                 corev1.PullIfNotPresent,
		"registry:5000/busybox":        corev1.PullAlways,
		"registry:5000/busybox:1.36":   corev1.PullIfNotPresent,
		"busybox@sha256:0123":          corev1.PullIfNotPresent,
		"busybox:1.36@sha256:0123":     corev1.PullIfNotPresent,
		"r:5000/b/c:latest@sha256:012": corev1.PullAlways,
		"":                             corev1.PullIfNotPresent,
	} {
		if got := pullPolicy(image); got != want {
			t.Errorf("pullPolicy(%q) = %s, want %s", image, got, want)
		}
	}
}
