package namespaces

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// conditionState is one condition before it is written: types, reasons and the fixed messages are upstream's, because people and
// dashboards search for them.
type conditionState struct {
	conditionType  corev1.NamespaceConditionType
	failing        bool
	reason, detail string
}

func conditionStates(waivers []blockedVersion, f *deletionResult) []conditionState {
	return []conditionState{
		discoveryCondition(waivers),
		{corev1.NamespaceDeletionGVParsingFailure, false, "ParsedGroupVersions", "All legacy kube types successfully parsed"},
		contentCondition(f),
		remainingCondition(f),
		finalizersCondition(f),
	}
}

func discoveryCondition(waivers []blockedVersion) conditionState {
	const kind = corev1.NamespaceDeletionDiscoveryFailure
	if len(waivers) == 0 {
		return conditionState{kind, false, "ResourcesDiscovered", "All resources successfully discovered"}
	}
	clauses := make([]string, 0, len(waivers))
	for _, w := range waivers {
		clauses = append(clauses, w.message())
	}
	return conditionState{kind, true, "DiscoveryFailed", fmt.Sprintf(
		"Discovery failed for some groups, %d failing: unable to retrieve the complete list of server APIs: %s",
		len(waivers), strings.Join(clauses, "; "))}
}

func contentCondition(f *deletionResult) conditionState {
	const kind = corev1.NamespaceDeletionContentFailure
	if len(f.errors) == 0 {
		return conditionState{kind, false, "ContentDeleted", "All content successfully deleted, may be waiting on finalization"}
	}
	return conditionState{kind, true, "ContentDeletionFailed", fmt.Sprintf(
		"Failed to delete all resource types, %d remaining: %s", len(f.errors), f.err())}
}

// remainingCondition says what is left, in upstream's words where upstream has any.
func remainingCondition(f *deletionResult) conditionState {
	const kind = corev1.NamespaceContentRemaining
	var clauses []string
	if len(f.remaining) > 0 {
		clauses = append(clauses, "Some resources are remaining: "+counts(f.remaining, "has"))
	}
	if len(f.deleted) > 0 {
		clauses = append(clauses, "Some resources were found and deleted, and are looked for once more: "+counts(f.deleted, "had"))
	}
	if len(f.needed) > 0 {
		needed := slices.Compact(slices.Sorted(slices.Values(f.needed)))
		clauses = append(clauses, "The backends of other resources are in this namespace, and those are deleted first: "+strings.Join(needed, ", "))
	}
	if len(clauses) == 0 {
		return conditionState{kind, false, "ContentRemoved", "All content successfully removed"}
	}
	return conditionState{kind, true, "SomeResourcesRemain", strings.Join(clauses, ". ")}
}

func counts(resources map[schema.GroupResource]int, verb string) string {
	var parts []string
	for gr, n := range resources {
		parts = append(parts, fmt.Sprintf("%s.%s %s %d resource instances", gr.Resource, gr.Group, verb, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func finalizersCondition(f *deletionResult) conditionState {
	const kind = corev1.NamespaceFinalizersRemaining
	if len(f.finalizers) == 0 {
		return conditionState{kind, false, "ContentHasNoFinalizers", "All content-preserving finalizers finished"}
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(f.finalizers)) {
		parts = append(parts, fmt.Sprintf("%s in %d resource instances", name, f.finalizers[name]))
	}
	return conditionState{kind, true, "SomeFinalizersRemain",
		"Some content in the namespace has finalizers remaining: " + strings.Join(parts, ", ")}
}

// conditions is current with ours brought up to date. A condition that did not change its status keeps its time.
func conditions(current []corev1.NamespaceCondition, waivers []blockedVersion, f *deletionResult, now metav1.Time) []corev1.NamespaceCondition {
	updated := slices.Clone(current)
	for _, v := range conditionStates(waivers, f) {
		c := corev1.NamespaceCondition{
			Type: v.conditionType, Status: corev1.ConditionFalse, Reason: v.reason, Message: v.detail, LastTransitionTime: now,
		}
		if v.failing {
			c.Status = corev1.ConditionTrue
		}
		i := slices.IndexFunc(updated, func(o corev1.NamespaceCondition) bool { return o.Type == v.conditionType })
		if i < 0 {
			updated = append(updated, c)
			continue
		}
		if updated[i].Status == c.Status {
			c.LastTransitionTime = updated[i].LastTransitionTime
		}
		updated[i] = c
	}
	return updated
}

// alreadyEmptied says whether the namespace's own status shows that everything reachable is gone and only the backends that
// are missing now were missing then. It is read from the object, not from memory, so that a restart knows it too.
func alreadyEmptied(ns *corev1.Namespace, waivers []blockedVersion) bool {
	want := conditionStates(waivers, &deletionResult{})
	for _, v := range want {
		i := slices.IndexFunc(ns.Status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == v.conditionType })
		if i < 0 || ns.Status.Conditions[i].Reason != v.reason || ns.Status.Conditions[i].Message != v.detail {
			return false
		}
	}
	return true
}

func sameStatus(a, b corev1.NamespaceStatus) bool { return equality.Semantic.DeepEqual(a, b) }
