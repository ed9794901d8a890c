package garbage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// foregroundPatience is how long a foreground deletion waits for kinds that have not been seen completely since they are
// known. Past it, the owner may go before dependents of such kinds, which are collected when they are seen.
const foregroundPatience = 30 * time.Second

// foreground lets an owner go when nothing is left that blocks it.
func (t *term) foreground(ctx context.Context, task task) (again time.Duration, err error) {
	live, gv, err := t.live(ctx, task.coordinates)
	if err != nil || live == nil || live.DeletionTimestamp == nil || !slices.Contains(live.Finalizers, metav1.FinalizerDeleteDependents) {
		return 0, err
	}
	blocked := false
	for _, d := range t.graph.dependentsOf(live.UID, live.Namespace) {
		if !d.blocks {
			continue
		}
		blocked = true
		if !d.foreground {
			t.wake(d.key, 0)
		}
	}
	if blocked {
		return recheck, nil // its end wakes us; this is for the end that nobody saw
	}
	unseen := t.unseen(live.Namespace, func(gr schema.GroupResource) bool {
		_, since := t.graph.synced(gr)
		return !since.IsZero() && time.Since(since) < foregroundPatience
	})
	if unseen != "" {
		return time.Second, nil
	}
	return 0, t.release(ctx, gv, task.coordinates, live, metav1.FinalizerDeleteDependents)
}

// orphan takes an owner's name off all its dependents and lets it go. It is a promise: whoever still names the owner
// afterwards is deleted. So it waits for every kind that could have dependents, also for one whose backend is dead, and
// says so.
func (t *term) orphan(ctx context.Context, task task) error {
	live, gv, err := t.live(ctx, task.coordinates)
	if err != nil || live == nil || live.DeletionTimestamp == nil || !slices.Contains(live.Finalizers, metav1.FinalizerOrphanDependents) {
		return err
	}
	var failures []error
	dependents := t.graph.dependentsOf(live.UID, live.Namespace)
	for _, d := range dependents {
		if err := t.disown(ctx, d.coordinates, live.UID); err != nil {
			failures = append(failures, err)
		}
	}
	if len(failures) > 0 {
		return errors.Join(failures...)
	}
	if len(dependents) > 0 {
		// The watches show them without the owner in a moment, and show who came meanwhile.
		return &laterError{orphanPatience, "the dependents have just been told"}
	}
	if unseen := t.unseen(live.Namespace, func(schema.GroupResource) bool { return true }); unseen != "" {
		t.events.orphanWaits(ctx, t.kindOf(task.coordinates), live, unseen)
		return &laterError{5 * time.Second, "dependents may be among " + unseen}
	}
	return t.release(ctx, gv, task.coordinates, live, metav1.FinalizerOrphanDependents)
}

func (t *term) disown(ctx context.Context, at coordinates, owner types.UID) error {
	live, gv, err := t.live(ctx, at)
	if err != nil || live == nil {
		return err
	}
	keep := slices.DeleteFunc(slices.Clone(live.OwnerReferences), func(r metav1.OwnerReference) bool { return r.UID == owner })
	if len(keep) == len(live.OwnerReferences) {
		return nil
	}
	return t.strip(ctx, gv, at, live, keep)
}

// unseen names something that could hold dependents of an owner in a namespace, or of one in none, and of which not
// everything has been seen since this replica leads; empty: there is nothing.
func (t *term) unseen(namespace string, matters func(schema.GroupResource) bool) string {
	d := t.cfg.Discovery()
	if d == nil || !d.Synced {
		return "what is not discovered yet"
	}
	for _, gv := range d.GroupVersions {
		if !gv.Known && !gv.Current && matters(schema.GroupResource{Group: gv.Group}) {
			return fmt.Sprintf("whatever %s serves, which has never been known (APIService %s: %s)", gv.GroupVersion, gv.APIService, gv.Reason)
		}
		for _, r := range gv.Resources {
			gr := schema.GroupResource{Group: gv.Group, Resource: r.Name}
			if !r.Collectable || ignored[gr] || namespace != "" && !r.Namespaced {
				continue
			}
			if synced, _ := t.graph.synced(gr); !synced && matters(gr) {
				return gr.String()
			}
		}
	}
	return ""
}
