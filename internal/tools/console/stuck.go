package console

import (
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// maxNamespaces bounds the namespaces that are shown, and maxCulprits the obstacles shown for each.
	maxNamespaces = 200
	maxCulprits   = 20
	// patience is how long a namespace may terminate before it counts as stuck without a condition.
	patience = 30 * time.Second
)

var (
	finalizerIn = regexp.MustCompile(`([^\s,:]+/[^\s,:]+|foregroundDeletion|orphan) in (\d+) resource instances?`)
	objectsOf   = regexp.MustCompile(`([^\s,:]+) has (\d+) resource instances?`)
)

// stuckNamespace returns the obstacles to the deletion of a terminating namespace. known contains the names of the
// APIServices.
func stuckNamespace(o *corev1.Namespace, known map[string]bool, now time.Time) namespace {
	n := namespace{Name: o.Name, Since: o.DeletionTimestamp.Time, Stuck: now.Sub(o.DeletionTimestamp.Time) > patience}
	for _, c := range o.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		n.Conditions = append(n.Conditions, condition{
			Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.Time, Bad: true,
		})
		n.blame(string(c.Type), c.Message, known)
	}
	for _, f := range o.Finalizers {
		n.name(culprit{Kind: "finalizer", Name: f, Why: "a finalizer of the namespace itself"})
	}
	for _, f := range o.Spec.Finalizers {
		if f != corev1.FinalizerKubernetes {
			n.name(culprit{Kind: "finalizer", Name: string(f), Why: "in spec.finalizers of the namespace"})
		}
	}
	n.Stuck = n.Stuck || slices.ContainsFunc(n.By, func(c culprit) bool { return c.Kind == "APIService" })
	return n
}

// blame parses the message of a condition, which names group-versions, APIServices, finalizers or remaining objects.
func (n *namespace) blame(kind, message string, known map[string]bool) {
	words := strings.FieldsFunc(message, func(r rune) bool { return strings.ContainsRune(" ,;()\"'[]", r) })
	for _, w := range words {
		w = strings.TrimRight(w, ".:")
		name := w
		if group, version, ok := strings.Cut(w, "/"); ok {
			name = version + "." + group
		}
		if known[name] {
			n.name(culprit{Kind: "APIService", Name: name, Why: kind})
		}
	}
	switch corev1.NamespaceConditionType(kind) {
	case corev1.NamespaceFinalizersRemaining:
		for _, m := range finalizerIn.FindAllStringSubmatch(message, maxCulprits) {
			n.name(culprit{Kind: "finalizer", Name: m[1], Why: "of " + quantity(m[2], "object")})
		}
	case corev1.NamespaceContentRemaining:
		for _, m := range objectsOf.FindAllStringSubmatch(message, maxCulprits) {
			n.name(culprit{Kind: "objects", Name: m[1], Why: m[2] + " left"})
		}
	}
}

// quantity returns a number with its noun in the right form.
func quantity(n, noun string) string {
	if n != "1" {
		noun += "s"
	}
	return n + " " + noun
}

func (n *namespace) name(c culprit) {
	if len(n.By) < maxCulprits && !slices.ContainsFunc(n.By, func(o culprit) bool { return o.Kind == c.Kind && o.Name == c.Name }) {
		n.By = append(n.By, c)
	}
}
