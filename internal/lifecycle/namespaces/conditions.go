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

// verdict is one condition before it is written: types, reasons and the fixed messages are upstream's, because people and
// dashboards search for them.
type verdict struct {
	kind           corev1.NamespaceConditionType
	bad            bool
	reason, detail string
}

func verdicts(waivers []waiver, f *found) []verdict {
	return []verdict{
		discoveryVerdict(waivers),
		{corev1.NamespaceDeletionGVParsingFailure, false, "ParsedGroupVersions", "All legacy kube types successfully parsed"},
		contentVerdict(f),
		remainingVerdict(f),
		finalizersVerdict(f),
	}
}

func discoveryVerdict(waivers []waiver) verdict {
	const kind = corev1.NamespaceDeletionDiscoveryFailure
	if len(waivers) == 0 {
		return verdict{kind, false, "ResourcesDiscovered", "All resources successfully discovered"}
	}
	clauses := make([]string, 0, len(waivers))
	for _, w := range waivers {
		clauses = append(clauses, w.clause())
	}
	return verdict{kind, true, "DiscoveryFailed", fmt.Sprintf(
		"Discovery failed for some groups, %d failing: unable to retrieve the complete list of server APIs: %s",
		len(waivers), strings.Join(clauses, "; "))}
}

func contentVerdict(f *found) verdict {
	const kind = corev1.NamespaceDeletionContentFailure
	if len(f.errors) == 0 {
		return verdict{kind, false, "ContentDeleted", "All content successfully deleted, may be waiting on finalization"}
	}
	return verdict{kind, true, "ContentDeletionFailed", fmt.Sprintf(
		"Failed to delete all resource types, %d remaining: %s", len(f.errors), f.err())}
}

// remainingVerdict says what is left, in upstream's words where upstream has any.
func remainingVerdict(f *found) verdict {
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
		return verdict{kind, false, "ContentRemoved", "All content successfully removed"}
	}
	return verdict{kind, true, "SomeResourcesRemain", strings.Join(clauses, ". ")}
}

func counts(resources map[schema.GroupResource]int, verb string) string {
	var parts []string
	for gr, n := range resources {
		parts = append(parts, fmt.Sprintf("%s.%s %s %d resource instances", gr.Resource, gr.Group, verb, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func finalizersVerdict(f *found) verdict {
	const kind = corev1.NamespaceFinalizersRemaining
	if len(f.finalizers) == 0 {
		return verdict{kind, false, "ContentHasNoFinalizers", "All content-preserving finalizers finished"}
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(f.finalizers)) {
		parts = append(parts, fmt.Sprintf("%s in %d resource instances", name, f.finalizers[name]))
	}
	return verdict{kind, true, "SomeFinalizersRemain",
		"Some content in the namespace has finalizers remaining: " + strings.Join(parts, ", ")}
}

// conditions is current with ours brought up to date. A condition that did not change its status keeps its time.
func conditions(current []corev1.NamespaceCondition, waivers []waiver, f *found, now metav1.Time) []corev1.NamespaceCondition {
	updated := slices.Clone(current)
	for _, v := range verdicts(waivers, f) {
		c := corev1.NamespaceCondition{
			Type: v.kind, Status: corev1.ConditionFalse, Reason: v.reason, Message: v.detail, LastTransitionTime: now,
		}
		if v.bad {
			c.Status = corev1.ConditionTrue
		}
		i := slices.IndexFunc(updated, func(o corev1.NamespaceCondition) bool { return o.Type == v.kind })
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

// alreadySwept says whether the namespace's own status shows that everything reachable is gone and only the backends that
// are missing now were missing then. It is read from the object, not from memory, so that a restart knows it too.
func alreadySwept(ns *corev1.Namespace, waivers []waiver) bool {
	want := verdicts(waivers, &found{})
	for _, v := range want {
		i := slices.IndexFunc(ns.Status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == v.kind })
		if i < 0 || ns.Status.Conditions[i].Reason != v.reason || ns.Status.Conditions[i].Message != v.detail {
			return false
		}
	}
	return true
}

func sameStatus(a, b corev1.NamespaceStatus) bool { return equality.Semantic.DeepEqual(a, b) }
