package validate

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	seccompPodAnnotation     = "seccomp.security.alpha.kubernetes.io/pod"
	seccompContainerPrefix   = "container.seccomp.security.alpha.kubernetes.io/"
	AppArmorContainerPrefix  = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix
	AppArmorProfilePrefix    = corev1.DeprecatedAppArmorBetaProfileNamePrefix
	AppArmorRuntimeDefault   = corev1.DeprecatedAppArmorBetaProfileRuntimeDefault
	AppArmorUnconfined       = corev1.DeprecatedAppArmorBetaProfileNameUnconfined
	seccompLocalhostProfile  = "localhost/"
	seccompRuntimeDefault    = "runtime/default"
	seccompDockerDefault     = "docker/default"
	seccompProfileUnconfined = "unconfined"
)

// podAnnotations checks the annotations that a kubelet or a controller obeys.
func podAnnotations(annotations map[string]string, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if value, mirror := annotations[corev1.MirrorPodAnnotationKey]; mirror && spec.NodeName == "" {
		errs = append(errs, field.Invalid(path.Key(corev1.MirrorPodAnnotationKey), value,
			"must set spec.nodeName if mirror pod annotation is set"))
	}
	if cost, said := annotations[corev1.PodDeletionCost]; said && !isDeletionCost(cost) {
		errs = append(errs, field.Invalid(path.Key(corev1.PodDeletionCost), cost, "must be a 32bit integer"))
	}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		value := annotations[key]
		switch {
		case key == seccompPodAnnotation, strings.HasPrefix(key, seccompContainerPrefix):
			errs = append(errs, seccompName(value, path.Child(key))...)
		case strings.HasPrefix(key, AppArmorContainerPrefix):
			container := strings.TrimPrefix(key, AppArmorContainerPrefix)
			if !HasContainer(spec, container) {
				errs = append(errs, field.Invalid(path.Key(key), container, "container not found"))
			}
			if err := appArmorName(value); err != nil {
				errs = append(errs, field.Invalid(path.Key(key), value, err.Error()))
			}
		}
	}
	return errs
}

// isDeletionCost refuses other spellings of a number: controllers parse it again and again, and compare.
func isDeletionCost(text string) bool {
	if strings.HasPrefix(text, "+") || len(text) > 1 && strings.HasPrefix(text, "0") {
		return false
	}
	_, err := strconv.ParseInt(text, 10, 32)
	return err == nil
}

func seccompName(profile string, path *field.Path) field.ErrorList {
	local, isLocal := strings.CutPrefix(profile, seccompLocalhostProfile)
	switch {
	case profile == seccompRuntimeDefault, profile == seccompDockerDefault, profile == seccompProfileUnconfined:
		return nil
	case isLocal:
		return descendingPath(local, path)
	}
	return field.ErrorList{field.Invalid(path, profile, "must be a valid seccomp profile")}
}

func appArmorName(profile string) error {
	if profile == "" || profile == AppArmorRuntimeDefault || profile == AppArmorUnconfined {
		return nil
	}
	if !strings.HasPrefix(profile, AppArmorProfilePrefix) {
		return errors.New("invalid AppArmor profile name: " + strconv.Quote(profile))
	}
	return nil
}

func HasContainer(spec *corev1.PodSpec, name string) bool {
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		if slices.ContainsFunc(list, func(c corev1.Container) bool { return c.Name == name }) {
			return true
		}
	}
	return slices.ContainsFunc(spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == name })
}

// PodAnnotationsUpdate keeps what a kubelet read when it started the pod.
func PodAnnotationsUpdate(p, old *corev1.Pod, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(old.Annotations)) {
		if value, kept := p.Annotations[key]; kept && value == old.Annotations[key] {
			continue
		}
		errs = append(errs, frozenAnnotation(key, "remove or update", path)...)
	}
	for _, key := range slices.Sorted(maps.Keys(p.Annotations)) {
		if _, before := old.Annotations[key]; !before {
			errs = append(errs, frozenAnnotation(key, "add", path)...)
		}
	}
	return append(errs, podAnnotations(p.Annotations, &p.Spec, path)...)
}

func frozenAnnotation(key, verb string, path *field.Path) field.ErrorList {
	switch {
	case strings.HasPrefix(key, AppArmorContainerPrefix):
		return field.ErrorList{field.Forbidden(path.Key(key), "may not "+verb+" AppArmor annotations")}
	case key == corev1.MirrorPodAnnotationKey:
		return field.ErrorList{field.Forbidden(path.Key(key), "may not "+verb+" mirror pod annotation")}
	}
	return nil
}
