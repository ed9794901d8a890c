package runtimeclass

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// merge returns both lists as one, in their order, without what another of them covers, as upstream does. Of equal ones
// the first stays.
func merge(own, added []corev1.Toleration) []corev1.Toleration {
	all := slices.Concat(own, added)
	var merged []corev1.Toleration
	for i, t := range all {
		before := slices.ContainsFunc(merged, func(other corev1.Toleration) bool { return covered(t, other) })
		after := slices.ContainsFunc(all[i+1:], func(other corev1.Toleration) bool {
			return !apiequality.Semantic.DeepEqual(t, other) && covered(t, other)
		})
		if !before && !after {
			merged = append(merged, t)
		}
	}
	return merged
}

// covered reports whether by tolerates everything that t does.
func covered(t, by corev1.Toleration) bool {
	if apiequality.Semantic.DeepEqual(t, by) {
		return true
	}
	if t.Key != by.Key && (by.Key != "" || by.Operator != corev1.TolerationOpExists) {
		return false
	}
	if t.Effect != by.Effect && by.Effect != "" {
		return false
	}
	if by.Effect == corev1.TaintEffectNoExecute && by.TolerationSeconds != nil &&
		(t.TolerationSeconds == nil || *t.TolerationSeconds > *by.TolerationSeconds) {
		return false
	}
	switch by.Operator {
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpEqual, "":
		return (t.Operator == corev1.TolerationOpEqual || t.Operator == "") && t.Value == by.Value
	}
	return false
}
