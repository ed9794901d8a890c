// Package podrefs finds the names of the objects that pods and volumes reference. A node may read the objects referenced by its
// pods, so that a missing field here is a missing permission of a node.
package podrefs

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"
)

// Containers returns all containers of a pod: init, regular and ephemeral containers.
func Containers(spec *corev1.PodSpec) iter.Seq[*corev1.Container] {
	return func(yield func(*corev1.Container) bool) {
		for i := range spec.InitContainers {
			if !yield(&spec.InitContainers[i]) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(&spec.Containers[i]) {
				return
			}
		}
		for i := range spec.EphemeralContainers {
			c := corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
			if !yield(&c) {
				return
			}
		}
	}
}

// Secrets returns the Secrets that a pod references in any field.
func Secrets(spec *corev1.PodSpec) iter.Seq[string] {
	return named(func(yield func(string) bool) {
		for _, ref := range spec.ImagePullSecrets {
			if !yield(ref.Name) {
				return
			}
		}
		for c := range Containers(spec) {
			for _, name := range secretsOfContainer(c) {
				if !yield(name) {
					return
				}
			}
		}
		for i := range spec.Volumes {
			for _, name := range secretsOfVolume(&spec.Volumes[i].VolumeSource) {
				if !yield(name) {
					return
				}
			}
		}
	})
}

func secretsOfContainer(c *corev1.Container) (names []string) {
	for _, from := range c.EnvFrom {
		if from.SecretRef != nil {
			names = append(names, from.SecretRef.Name)
		}
	}
	for _, env := range c.Env {
		if env.ValueFrom != nil && env.ValueFrom.SecretKeyRef != nil {
			names = append(names, env.ValueFrom.SecretKeyRef.Name)
		}
	}
	return names
}

func secretsOfVolume(s *corev1.VolumeSource) (names []string) {
	switch {
	case s.AzureFile != nil:
		return []string{s.AzureFile.SecretName}
	case s.CephFS != nil:
		return nameOf(s.CephFS.SecretRef)
	case s.Cinder != nil:
		return nameOf(s.Cinder.SecretRef)
	case s.FlexVolume != nil:
		return nameOf(s.FlexVolume.SecretRef)
	case s.Projected != nil:
		for _, p := range s.Projected.Sources {
			if p.Secret != nil {
				names = append(names, p.Secret.Name)
			}
		}
	case s.RBD != nil:
		return nameOf(s.RBD.SecretRef)
	case s.Secret != nil:
		return []string{s.Secret.SecretName}
	case s.ScaleIO != nil:
		return nameOf(s.ScaleIO.SecretRef)
	case s.ISCSI != nil:
		return nameOf(s.ISCSI.SecretRef)
	case s.StorageOS != nil:
		return nameOf(s.StorageOS.SecretRef)
	case s.CSI != nil:
		return nameOf(s.CSI.NodePublishSecretRef)
	}
	return names
}

func nameOf(ref *corev1.LocalObjectReference) []string {
	if ref == nil {
		return nil
	}
	return []string{ref.Name}
}

// ConfigMaps returns the ConfigMaps that a pod references in any field.
func ConfigMaps(spec *corev1.PodSpec) iter.Seq[string] {
	return named(func(yield func(string) bool) {
		for c := range Containers(spec) {
			for _, name := range configMapsOfContainer(c) {
				if !yield(name) {
					return
				}
			}
		}
		for i := range spec.Volumes {
			for _, name := range configMapsOfVolume(&spec.Volumes[i].VolumeSource) {
				if !yield(name) {
					return
				}
			}
		}
	})
}

func configMapsOfContainer(c *corev1.Container) (names []string) {
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef != nil {
			names = append(names, from.ConfigMapRef.Name)
		}
	}
	for _, env := range c.Env {
		if env.ValueFrom != nil && env.ValueFrom.ConfigMapKeyRef != nil {
			names = append(names, env.ValueFrom.ConfigMapKeyRef.Name)
		}
	}
	return names
}

func configMapsOfVolume(s *corev1.VolumeSource) (names []string) {
	switch {
	case s.Projected != nil:
		for _, p := range s.Projected.Sources {
			if p.ConfigMap != nil {
				names = append(names, p.ConfigMap.Name)
			}
		}
	case s.ConfigMap != nil:
		return []string{s.ConfigMap.Name}
	}
	return names
}

// VolumeClaims returns the PersistentVolumeClaims of a pod, including those created for its ephemeral volumes.
func VolumeClaims(pod *corev1.Pod) iter.Seq[string] {
	return named(func(yield func(string) bool) {
		for i := range pod.Spec.Volumes {
			name := ""
			switch v := &pod.Spec.Volumes[i]; {
			case v.PersistentVolumeClaim != nil:
				name = v.PersistentVolumeClaim.ClaimName
			case v.Ephemeral != nil:
				name = ephemeral.VolumeClaimName(pod, v)
			}
			if !yield(name) {
				return
			}
		}
	})
}

// ResourceClaims returns the known ResourceClaims of a pod: the claims that it references, and the claims created for it, which
// its status references.
func ResourceClaims(pod *corev1.Pod) iter.Seq[string] {
	return named(func(yield func(string) bool) {
		for _, c := range pod.Spec.ResourceClaims {
			if !yield(resourceClaim(pod, c)) {
				return
			}
		}
		if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
			yield(extended.ResourceClaimName)
		}
	})
}

func resourceClaim(pod *corev1.Pod, c corev1.PodResourceClaim) string {
	if c.ResourceClaimName != nil {
		return *c.ResourceClaimName
	}
	if c.ResourceClaimTemplateName == nil {
		return ""
	}
	made := slices.IndexFunc(pod.Status.ResourceClaimStatuses, func(s corev1.PodResourceClaimStatus) bool { return s.Name == c.Name })
	if made < 0 || pod.Status.ResourceClaimStatuses[made].ResourceClaimName == nil {
		return ""
	}
	return *pod.Status.ResourceClaimStatuses[made].ResourceClaimName
}

// VolumeSecrets returns the namespaces and names of the Secrets of a PersistentVolume that kubelets read. It omits Secrets that
// only storage controllers read.
func VolumeSecrets(pv *corev1.PersistentVolume) iter.Seq2[string, string] {
	return func(yield func(namespace, name string) bool) {
		for _, ref := range volumeSecrets(pv) {
			if ref != nil && ref.Name != "" && !yield(ref.Namespace, ref.Name) {
				return
			}
		}
	}
}

func volumeSecrets(pv *corev1.PersistentVolume) []*corev1.SecretReference {
	claimed := ""
	if pv.Spec.ClaimRef != nil {
		claimed = pv.Spec.ClaimRef.Namespace
	}
	// Old objects omit the namespace, which then defaults to the claim's namespace.
	orClaimed := func(ref *corev1.SecretReference) []*corev1.SecretReference {
		if ref == nil || ref.Namespace != "" {
			return []*corev1.SecretReference{ref}
		}
		return []*corev1.SecretReference{{Namespace: claimed, Name: ref.Name}}
	}
	switch s := &pv.Spec.PersistentVolumeSource; {
	case s.AzureFile != nil:
		ref := &corev1.SecretReference{Name: s.AzureFile.SecretName}
		if s.AzureFile.SecretNamespace != nil {
			ref.Namespace = *s.AzureFile.SecretNamespace
		}
		return orClaimed(ref)
	case s.CephFS != nil:
		return orClaimed(s.CephFS.SecretRef)
	case s.Cinder != nil:
		return []*corev1.SecretReference{s.Cinder.SecretRef}
	case s.FlexVolume != nil:
		return orClaimed(s.FlexVolume.SecretRef)
	case s.RBD != nil:
		return orClaimed(s.RBD.SecretRef)
	case s.ScaleIO != nil:
		return orClaimed(s.ScaleIO.SecretRef)
	case s.ISCSI != nil:
		return orClaimed(s.ISCSI.SecretRef)
	case s.StorageOS != nil && s.StorageOS.SecretRef != nil:
		return []*corev1.SecretReference{{Namespace: s.StorageOS.SecretRef.Namespace, Name: s.StorageOS.SecretRef.Name}}
	case s.CSI != nil:
		return []*corev1.SecretReference{s.CSI.NodePublishSecretRef, s.CSI.NodeStageSecretRef, s.CSI.NodeExpandSecretRef}
	}
	return nil
}

// named omits empty names.
func named(names iter.Seq[string]) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range names {
			if name != "" && !yield(name) {
				return
			}
		}
	}
}

// Any reports whether there is a name.
func Any(names iter.Seq[string]) bool {
	for range names {
		return true
	}
	return false
}
