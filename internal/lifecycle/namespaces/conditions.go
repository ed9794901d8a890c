package namespaces

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Conditions of a namespace that is being deleted have one reason while nothing is wrong, and another while the deletion waits.
// Types, reasons and fixed messages equal kube-controller-manager's.
//
//reference:conditions Reasons of the conditions of a namespace
const (
	// reasonResourcesDiscovered is NamespaceDeletionDiscoveryFailure False: every group-version that may hold objects is
	// available.
	reasonResourcesDiscovered = "ResourcesDiscovered"
	// reasonDiscoveryFailed is NamespaceDeletionDiscoveryFailure True; the message names the APIServices that the namespace
	// waits for.
	reasonDiscoveryFailed = "DiscoveryFailed"
	// reasonParsedGroupVersions is NamespaceDeletionGroupVersionParsingFailure False, always.
	reasonParsedGroupVersions = "ParsedGroupVersions"
	// reasonContentDeleted is NamespaceDeletionContentFailure False: every deletion was accepted.
	reasonContentDeleted = "ContentDeleted"
	// reasonContentDeletionFailed is NamespaceDeletionContentFailure True; the message names the resources and the errors.
	reasonContentDeletionFailed = "ContentDeletionFailed"
	// reasonContentRemoved is NamespaceContentRemaining False: nothing is left.
	reasonContentRemoved = "ContentRemoved"
	// reasonSomeResourcesRemain is NamespaceContentRemaining True; the message counts the remaining objects.
	reasonSomeResourcesRemain = "SomeResourcesRemain"
	// reasonContentHasNoFinalizers is NamespaceFinalizersRemaining False: no object has a finalizer left.
	reasonContentHasNoFinalizers = "ContentHasNoFinalizers"
	// reasonSomeFinalizersRemain is NamespaceFinalizersRemaining True; the message names the finalizers.
	reasonSomeFinalizersRemain = "SomeFinalizersRemain"
)

// conditionState is the desired state of one condition. Types, reasons and fixed messages equal kube-controller-manager's,
// because operators and dashboards search for them.
type conditionState struct {
	conditionType  corev1.NamespaceConditionType
	failing        bool
	reason, detail string
}

func conditionStates(blocking []blockedVersion, f *deletionResult) []conditionState {
	return []conditionState{
		discoveryCondition(blocking),
		{corev1.NamespaceDeletionGVParsingFailure, false, reasonParsedGroupVersions, "All legacy kube types successfully parsed"},
		contentCondition(f),
		remainingCondition(f),
		finalizersCondition(f),
	}
}

func discoveryCondition(blocking []blockedVersion) conditionState {
	const kind = corev1.NamespaceDeletionDiscoveryFailure
	if len(blocking) == 0 {
		return conditionState{kind, false, reasonResourcesDiscovered, "All resources successfully discovered"}
	}
	clauses := make([]string, 0, len(blocking))
	for _, w := range blocking {
		clauses = append(clauses, w.message())
	}
	return conditionState{kind, true, reasonDiscoveryFailed, fmt.Sprintf(
		"%sunable to retrieve the complete list of server APIs: %s", failingPrefix(len(blocking)), strings.Join(clauses, "; "))}
}

// failingPrefix returns the start of the message about unavailable group-versions.
func failingPrefix(n int) string {
	return fmt.Sprintf("Discovery failed for some groups, %d failing: ", n)
}

func contentCondition(f *deletionResult) conditionState {
	const kind = corev1.NamespaceDeletionContentFailure
	if len(f.errors) == 0 {
		return conditionState{kind, false, reasonContentDeleted, "All content successfully deleted, may be waiting on finalization"}
	}
	return conditionState{kind, true, reasonContentDeletionFailed, fmt.Sprintf(
		"Failed to delete all resource types, %d remaining: %s", len(f.errors), f.err())}
}

// remainingCondition describes the remaining content, with kube-controller-manager's messages where they exist.
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
		return conditionState{kind, false, reasonContentRemoved, "All content successfully removed"}
	}
	return conditionState{kind, true, reasonSomeResourcesRemain, strings.Join(clauses, ". ")}
}

func counts(resources map[content]int, verb string) string {
	var parts []string
	for c, n := range resources {
		parts = append(parts, fmt.Sprintf("%s %s %d resource instances", c, verb, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func finalizersCondition(f *deletionResult) conditionState {
	const kind = corev1.NamespaceFinalizersRemaining
	if len(f.finalizers) == 0 {
		return conditionState{kind, false, reasonContentHasNoFinalizers, "All content-preserving finalizers finished"}
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(f.finalizers)) {
		parts = append(parts, fmt.Sprintf("%s in %d resource instances", name, f.finalizers[name]))
	}
	return conditionState{kind, true, reasonSomeFinalizersRemain,
		"Some content in the namespace has finalizers remaining: " + strings.Join(parts, ", ")}
}

// conditions merges the conditions of this controller into current. A condition with an unchanged status keeps its transition
// time.
func conditions(current []corev1.NamespaceCondition, blocking []blockedVersion, f *deletionResult, now metav1.Time) []corev1.NamespaceCondition {
	updated := slices.Clone(current)
	for _, v := range conditionStates(blocking, f) {
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

// alreadyEmptied reports whether the status shows that everything reachable was deleted while the same backends were
// unavailable. It reads the object, so that it works after a restart. The reasons may have changed: a backend that returns is
// unavailable for another reason until its discovery document has been received.
func alreadyEmptied(ns *corev1.Namespace, blocking []blockedVersion) bool {
	message, emptied := emptiedExcept(ns)
	return emptied && strings.HasPrefix(message, failingPrefix(len(blocking))) &&
		!slices.ContainsFunc(blocking, func(w blockedVersion) bool {
			return !strings.Contains(message, unavailablePrefix(w.GroupVersion.GroupVersion, w.APIService))
		})
}

// returned returns the groups of backends that have returned since the status showed that everything else was deleted.
func returned(ns *corev1.Namespace, groups [][]target) [][]target {
	message, emptied := emptiedExcept(ns)
	if !emptied {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(groups), func(targets []target) bool {
		return !slices.ContainsFunc(targets, func(t target) bool {
			return t.apiService != "" && strings.Contains(message, unavailablePrefix(t.GroupVersion(), t.apiService))
		})
	})
}

// emptiedExcept reports whether the status shows that everything reachable was deleted while backends were unavailable, and
// returns the message that names them.
func emptiedExcept(ns *corev1.Namespace) (message string, emptied bool) {
	for _, want := range conditionStates(nil, &deletionResult{}) {
		i := slices.IndexFunc(ns.Status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == want.conditionType })
		if i < 0 {
			return "", false
		}
		c := ns.Status.Conditions[i]
		switch {
		case c.Type == corev1.NamespaceDeletionDiscoveryFailure:
			message, emptied = c.Message, c.Reason == reasonDiscoveryFailed
		case c.Reason != want.reason || c.Message != want.detail:
			return "", false
		}
	}
	return message, emptied
}

func sameStatus(a, b corev1.NamespaceStatus) bool { return equality.Semantic.DeepEqual(a, b) }
