package namespaces

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/lifecycle/debts"
)

// finalizedWithoutBackend is a namespace that was finalized without an extension server that may still hold objects of it.
//
//reference:conditions Events
const finalizedWithoutBackend = "NamespaceFinalizedWithoutBackend"

const (
	// DefaultCycleGrace is how long a namespace waits for a backend that had its Service in this namespace.
	DefaultCycleGrace = 30 * time.Second
	// eventTimeout bounds the writing of an Event.
	eventTimeout = 10 * time.Second
)

// blockedVersion is a group-version that blocks a namespace, with the deadline after which the namespace is finalized without
// it.
type blockedVersion struct {
	GroupVersion
	// zero if the namespace waits without limit
	deadline time.Time
	reason   string
}

// blockedVersions returns the group-versions that block a namespace, with their deadlines.
//
// A group-version has a deadline in two cases: its APIService has an annotation that limits the wait, or the backend's Service
// was deleted with this namespace, so that the backend cannot return. Both times count from the deletion or from the moment the
// last replica lost the backend, whichever is later. No deadline applies while a replica reaches the backend.
func (f *Finalizer) blockedVersions(ns *corev1.Namespace, blocked []GroupVersion) []blockedVersion {
	out := make([]blockedVersion, 0, len(blocked))
	for _, gv := range blocked {
		w := blockedVersion{GroupVersion: gv}
		if d, ok := f.Debts.Lookup(debts.IDOf(ns.UID, gv.GroupVersion, gv.APIService)); ok {
			// The decision was recorded before, perhaps by another replica. The return of the backend does not change it: the
			// backend stays unavailable until the debt is cleaned up, which deletes the objects of this namespace.
			w.deadline, w.reason = d.Since, d.Reason
			out = append(out, w)
			continue
		}
		if gv.UnreachableSince.IsZero() {
			out = append(out, w)
			continue
		}
		from := ns.DeletionTimestamp.Time
		if gv.UnreachableSince.After(from) {
			from = gv.UnreachableSince
		}
		if gv.FinalizeAfter > 0 {
			w.deadline, w.reason = from.Add(gv.FinalizeAfter), fmt.Sprintf("portico.dev/finalize-namespaces-after is %s", gv.FinalizeAfter)
		}
		if at := from.Add(f.CycleGrace); gv.Service.Namespace == ns.Name && (w.deadline.IsZero() || at.Before(w.deadline)) {
			w.deadline, w.reason = at, fmt.Sprintf("its Service %s was in this namespace and cannot come back", gv.Service)
		}
		out = append(out, w)
	}
	return out
}

// message returns this group-version's part of the condition message.
func (w blockedVersion) message() string {
	text := w.problem()
	if !w.deadline.IsZero() {
		text += fmt.Sprintf("; the namespace goes without it from %s on, when nothing else is left, because %s", w.deadline.UTC().Format(time.RFC3339), w.reason)
	}
	return text
}

// allExpired reports whether all deadlines have passed, and otherwise when that may change.
func allExpired(blocking []blockedVersion, now time.Time) (all bool, next time.Duration) {
	all, next = true, blockedRetry
	for _, w := range blocking {
		left := w.deadline.Sub(now)
		if w.deadline.IsZero() {
			left = blockedRetry
		}
		if left > 0 {
			all, next = false, min(next, left)
		}
	}
	return all, next
}

// finalizeWithout finalizes a namespace without its unreachable backends. It records the debts first and then delays the
// finalization, so that objects of this namespace are older than objects of a new namespace of the same name.
func (f *Finalizer) finalizeWithout(ctx context.Context, ns *corev1.Namespace, blocking []blockedVersion) (time.Duration, error) {
	var wait time.Duration
	for _, w := range blocking {
		d, ok := f.Debts.Lookup(debts.IDOf(ns.UID, w.GroupVersion.GroupVersion, w.APIService))
		if !ok {
			d = debts.NewDebt(ns.Name, ns.UID, w.GroupVersion.GroupVersion, w.APIService, w.reason)
			if err := f.Debts.Record(ctx, d); err != nil {
				return 0, err
			}
		}
		wait = max(wait, debts.FinalizeDelay-time.Since(d.Since))
	}
	if wait > 0 {
		return wait, nil
	}
	if err := f.finalize(ctx, ns); err != nil {
		return 0, err
	}
	for _, w := range blocking {
		f.recordEvent(ctx, ns, w)
	}
	return 0, nil
}

// recordEvent logs the decision and writes an Event about the APIService.
func (f *Finalizer) recordEvent(ctx context.Context, ns *corev1.Namespace, w blockedVersion) {
	id := debts.IDOf(ns.UID, w.GroupVersion.GroupVersion, w.APIService)
	f.Logger.Warn("namespace finalized without a backend", zap.String("namespace", ns.Name), zap.String("uid", string(ns.UID)),
		zap.String("apiservice", w.APIService), zap.String("because", w.reason), zap.String("debt", id))
	now := metav1.Now()
	apiService, _, _ := strings.Cut(w.APIService, "/")
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("%s.%s", apiService, id)},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "apiregistration.k8s.io/v1", Kind: "APIService", Name: apiService, UID: w.UID,
		},
		Related: &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: ns.Name, UID: ns.UID},
		Type:    corev1.EventTypeWarning, Reason: finalizedWithoutBackend, Action: "Finalize",
		Message: fmt.Sprintf("namespace %s (uid %s) was finalized without %s, because %s; its objects there are cleanup debt %s, paid when the backend returns",
			ns.Name, ns.UID, w.GroupVersion.GroupVersion, w.reason, id),
		Source: corev1.EventSource{Component: "portico"}, ReportingController: "portico", ReportingInstance: "portico",
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	if _, err := f.Client.CoreV1().Events(metav1.NamespaceDefault).Create(ctx, event, metav1.CreateOptions{}); err != nil {
		f.Logger.Warn("failed to write an Event", zap.String("reason", finalizedWithoutBackend), zap.String("apiservice", w.APIService), zap.Error(err))
	}
}
