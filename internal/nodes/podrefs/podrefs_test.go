package podrefs

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// paths collects the fields of a type, at any depth, whose names contain a word. It does not descend into a field that it
// found.
func paths(t reflect.Type, word, at string, found map[string]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		paths(t.Elem(), word, at, found)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			here := strings.TrimPrefix(at+"."+f.Name, ".")
			if f.Anonymous {
				here = at
			}
			if strings.Contains(strings.ToLower(f.Name), word) && !isLeafOfAnother(f) {
				found[here] = true
				continue
			}
			paths(f.Type, word, here, found)
		}
	}
}

// isLeafOfAnother is for names that only contain the word.
func isLeafOfAnother(f reflect.StructField) bool { return f.Type.Kind() == reflect.Bool }

// A field that the next version of Kubernetes adds fails this test until Secrets, ConfigMaps or VolumeSecrets covers it.
func TestEverySecretAndConfigMapFieldIsCovered(t *testing.T) {
	container := func(kind string, fields ...string) (all []string) {
		for _, f := range fields {
			all = append(all, kind+"."+f)
		}
		return all
	}
	both := func(fields ...string) (all []string) {
		for _, kind := range []string{"Containers", "InitContainers", "EphemeralContainers"} {
			all = append(all, container(kind, fields...)...)
		}
		return all
	}
	for name, c := range map[string]struct {
		of   reflect.Type
		word string
		want []string
	}{
		"secrets of pods": {reflect.TypeFor[corev1.PodSpec](), "secret", append(both("Env.ValueFrom.SecretKeyRef", "EnvFrom.SecretRef"),
			"ImagePullSecrets", "Volumes.AzureFile.SecretName", "Volumes.CephFS.SecretRef", "Volumes.CephFS.SecretFile", "Volumes.Cinder.SecretRef",
			"Volumes.CSI.NodePublishSecretRef", "Volumes.FlexVolume.SecretRef", "Volumes.ISCSI.SecretRef", "Volumes.Projected.Sources.Secret",
			"Volumes.RBD.SecretRef", "Volumes.ScaleIO.SecretRef", "Volumes.Secret", "Volumes.StorageOS.SecretRef")},
		"configmaps of pods": {reflect.TypeFor[corev1.PodSpec](), "configmap", append(both("Env.ValueFrom.ConfigMapKeyRef", "EnvFrom.ConfigMapRef"),
			"Volumes.ConfigMap", "Volumes.Projected.Sources.ConfigMap")},
		"secrets of volumes": {reflect.TypeFor[corev1.PersistentVolumeSource](), "secret", []string{
			"AzureFile.SecretName", "AzureFile.SecretNamespace", "CephFS.SecretRef", "CephFS.SecretFile", "Cinder.SecretRef", "CSI.ControllerPublishSecretRef",
			"CSI.ControllerExpandSecretRef", "CSI.NodePublishSecretRef", "CSI.NodeStageSecretRef", "CSI.NodeExpandSecretRef", "FlexVolume.SecretRef",
			"ISCSI.SecretRef", "RBD.SecretRef", "ScaleIO.SecretRef", "StorageOS.SecretRef",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			found := map[string]bool{}
			paths(c.of, c.word, "", found)
			slices.Sort(c.want)
			if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestEmptyReferencesAreIgnored(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{}}
	pod.Spec.Volumes = []corev1.Volume{{}, {VolumeSource: corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{}, PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}}}
	if Any(Secrets(&pod.Spec)) || Any(ConfigMaps(&pod.Spec)) || Any(VolumeClaims(pod)) || Any(ResourceClaims(pod)) {
		t.Error("references with empty names were found, want none")
	}
	for namespace, name := range VolumeSecrets(&corev1.PersistentVolume{}) {
		t.Errorf("VolumeSecrets of a volume without a source has %s/%s, want none", namespace, name)
	}
}
