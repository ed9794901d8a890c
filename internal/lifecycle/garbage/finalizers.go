package garbage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Reasons of the Events about objects that cannot be collected.
//
//reference:conditions Events
const (
	// reasonInvalidOwnerNamespace is an ownerReference that is invalid because the owner would be in another namespace.
	reasonInvalidOwnerNamespace = "OwnerRefInvalidNamespace"
	// reasonOrphanWaits is a deletion with propagationPolicy Orphan that waits because dependents may exist in resources that
	// cannot be listed.
	reasonOrphanWaits = "OrphanWaits"
)

// foregroundTimeout is how long a foreground deletion waits for resources that have not been listed completely. Afterwards the
// owner may be deleted before dependents in such resources. They are collected when they are listed.
const foregroundTimeout = 30 * time.Second

// foreground removes an owner's finalizer when no dependent blocks it.
func (t *term) foreground(ctx context.Context, task task) (again time.Duration, err error) {
	live, gv, err := t.getLive(ctx, task.coordinates)
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
			t.enqueue(d.key, 0)
		}
	}
	if blocked {
		return recheckInterval, nil // the deletion of a dependent queues the owner; this interval covers deletions that no watch reported
	}
	unseen := t.unseenResource(live.Namespace, func(id resourceID) bool {
		_, since := t.graph.synced(id)
		return !since.IsZero() && time.Since(since) < foregroundTimeout
	})
	if unseen != "" {
		return time.Second, nil
	}
	return 0, t.removeFinalizer(ctx, gv, task.coordinates, live, metav1.FinalizerDeleteDependents)
}

// orphan removes an owner from all its dependents, then removes the owner's finalizer. A dependent that still names the owner
// afterwards would be deleted. Therefore orphan waits for every resource that could have dependents, including resources of
// unavailable backends, and reports the wait in an Event.
func (t *term) orphan(ctx context.Context, task task) error {
	live, gv, err := t.getLive(ctx, task.coordinates)
	if err != nil || live == nil || live.DeletionTimestamp == nil || !slices.Contains(live.Finalizers, metav1.FinalizerOrphanDependents) {
		return err
	}
	var failures []error
	all := func(resourceID) bool { return true }
	// Check before reading the dependents, because a list may end right after, and again afterwards, because a backend may have
	// been listed again, and found empty, right before.
	unseen := t.unseenResource(live.Namespace, all)
	dependents := t.graph.dependentsOf(live.UID, live.Namespace)
	for _, d := range dependents {
		if err := t.removeOwner(ctx, d.coordinates, live.UID); err != nil {
			failures = append(failures, err)
		}
	}
	if len(failures) > 0 {
		return errors.Join(failures...)
	}
	if len(dependents) > 0 {
		// The watches will soon deliver them without the owner, together with dependents that were created in the meantime.
		return &retryLaterError{orphanDelay, "the dependents have just been told"}
	}
	if unseen == "" {
		unseen = t.unseenResource(live.Namespace, all)
	}
	if unseen != "" {
		t.events.orphanWaits(ctx, t.kindOf(task.coordinates), live, unseen)
		return &retryLaterError{5 * time.Second, "dependents may be among " + unseen}
	}
	return t.removeFinalizer(ctx, gv, task.coordinates, live, metav1.FinalizerOrphanDependents)
}

func (t *term) removeOwner(ctx context.Context, at coordinates, owner types.UID) error {
	live, gv, err := t.getLive(ctx, at)
	if err != nil || live == nil {
		return err
	}
	keep := slices.DeleteFunc(slices.Clone(live.OwnerReferences), func(r metav1.OwnerReference) bool { return r.UID == owner })
	if len(keep) == len(live.OwnerReferences) {
		return nil
	}
	return t.setOwnerReferences(ctx, gv, at, live, keep)
}

// unseenResource returns a resource that could hold dependents of an owner and has not been listed completely since this
// replica leads, or "" if all have been listed. namespace is the owner's.
func (t *term) unseenResource(namespace string, matters func(resourceID) bool) string {
	d := t.cfg.Discovery()
	if d == nil || !d.Synced {
		return "what is not discovered yet"
	}
	for _, gv := range d.GroupVersions {
		if !gv.Known && !gv.Current && matters(gv.resourceID("")) {
			return fmt.Sprintf("whatever %s serves, which has never been known (APIService %s: %s)", gv.GroupVersion, gv.APIService, gv.Reason)
		}
		for _, r := range gv.Resources {
			id := gv.resourceID(r.Name)
			if !r.Collectable || ignored[id.GroupResource] || namespace != "" && !r.Namespaced {
				continue
			}
			if synced, _ := t.graph.synced(id); !synced && matters(id) {
				return id.String()
			}
		}
	}
	return ""
}

const (
	// eventSource is the component name of kube-controller-manager's garbage collector.
	eventSource = "garbage-collector-controller"
	// eventInterval is the minimum time between two equal Events.
	eventInterval = time.Hour
)

// events writes Events about problems with objects. Events that cannot be written are lost.
type events struct {
	client corev1client.EventsGetter
	sent   *lru.Cache[string, time.Time]
	log    *zap.Logger
}

func newEvents(client corev1client.EventsGetter, log *zap.Logger) *events {
	return &events{client: client, sent: newCache[string, time.Time](), log: log}
}

// misplaced reports an owner in another namespace, or a namespaced owner of a cluster-scoped object.
func (e *events) misplaced(ctx context.Context, kind schema.GroupVersionKind, o *metav1.PartialObjectMetadata, ref metav1.OwnerReference) {
	owner := fmt.Sprintf("[%s/%s, namespace: %s, name: %s, uid: %s]", ref.APIVersion, ref.Kind, o.Namespace, ref.Name, ref.UID)
	e.warn(ctx, kind, o, reasonInvalidOwnerNamespace, fmt.Sprintf("ownerRef %s does not exist in namespace %q", owner, o.Namespace))
}

// orphanWaits reports why a deletion with propagationPolicy Orphan waits.
func (e *events) orphanWaits(ctx context.Context, kind schema.GroupVersionKind, o *metav1.PartialObjectMetadata, unseen string) {
	e.warn(ctx, kind, o, reasonOrphanWaits, "dependents that have to be kept may be among "+unseen+
		", which cannot be listed now; the deletion goes on when they can be, or when their APIService is deleted")
}

func (e *events) warn(ctx context.Context, kind schema.GroupVersionKind, o *metav1.PartialObjectMetadata, reason, message string) {
	id, now := string(o.UID)+" "+message, time.Now()
	if last, ok := e.sent.Get(id); ok && now.Sub(last) < eventInterval {
		return
	}
	e.sent.Add(id, now)
	namespace := cmp.Or(o.Namespace, metav1.NamespaceDefault)
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", o.Name, now.UnixNano()), Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID,
		},
		Reason: reason, Message: message, Type: corev1.EventTypeWarning,
		Source: corev1.EventSource{Component: eventSource}, ReportingController: eventSource,
		FirstTimestamp: metav1.NewTime(now), LastTimestamp: metav1.NewTime(now), Count: 1,
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if _, err := e.client.Events(namespace).Create(ctx, event, metav1.CreateOptions{}); err != nil {
		e.log.Warn("failed to write an Event", zap.String("reason", reason), zap.String("message", message), zap.Error(err))
	}
}
