package garbage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// recheck is when an object is judged again whose owner lives, but is in no watch that would tell of its end.
const recheck = time.Minute

// attempt judges one object and does what follows. again > 0: look again after that time.
func (t *term) attempt(ctx context.Context, k key) (again time.Duration, err error) {
	task, ok := t.graph.task(k)
	switch {
	case !ok:
		return 0, nil
	case task.orphan:
		return 0, t.orphan(ctx, task)
	case task.foreground:
		return t.foreground(ctx, task)
	case !task.owed:
		return 0, nil
	}
	live, gv, err := t.live(ctx, task.coordinates)
	if err != nil || live == nil || live.DeletionTimestamp != nil || len(live.OwnerReferences) == 0 {
		return 0, err
	}
	v, err := t.verdict(ctx, task.coordinates, live)
	if err != nil {
		return 0, err
	}
	switch {
	case len(v.keeping) > 0 && len(v.gone)+len(v.waiting) > 0:
		return v.again, t.strip(ctx, gv, task.coordinates, live, v.keeping)
	case len(v.keeping) > 0:
		return v.again, nil
	case len(v.waiting) > 0:
		return 0, t.deleteForWaiting(ctx, gv, task, live)
	}
	return 0, t.delete(ctx, gv, task.coordinates, live, policyOf(live))
}

// live is the object as it is now; nil when it is gone, of which its watch will tell.
func (t *term) live(ctx context.Context, at coordinates) (*metav1.PartialObjectMetadata, GroupVersion, error) {
	gv, err := t.serving(at)
	if err != nil {
		return nil, gv, err
	}
	object, err := t.get(ctx, gv, at)
	switch {
	case isGone(err, gv, at):
		return nil, gv, nil
	case err != nil:
		return nil, gv, fmt.Errorf("get %s %s: %w", at.Resource, at.name, err)
	case object.UID != at.uid:
		return nil, gv, nil
	}
	return object, gv, nil
}

// verdict is the owner references of an object by what they are worth.
type verdict struct {
	keeping, waiting, gone []metav1.OwnerReference
	again                  time.Duration
}

// verdict judges every reference, or none: what is not certain of one could change what follows from the others.
func (t *term) verdict(ctx context.Context, at coordinates, o *metav1.PartialObjectMetadata) (verdict, error) {
	var v verdict
	for _, ref := range o.OwnerReferences {
		s, err := t.judge(ctx, o.Namespace, ref)
		if err != nil {
			return v, fmt.Errorf("owner %s %s: %w", ref.Kind, ref.Name, err)
		}
		switch s {
		case gone:
			v.gone = append(v.gone, ref)
		case waiting:
			v.waiting = append(v.waiting, ref)
		case misplaced:
			v.keeping = append(v.keeping, ref)
			t.events.misplaced(ctx, t.kindOf(at), o, ref)
		case living:
			v.keeping = append(v.keeping, ref)
			if len(t.graph.where(ref.UID)) == 0 {
				v.again = recheck
			}
		}
	}
	return v, nil
}

// deleteForWaiting deletes an object whose owner waits for it. If others wait for it in turn, they go first. Two objects
// that own each other would wait forever, so who is waited for already does not wait for its owner.
func (t *term) deleteForWaiting(ctx context.Context, gv GroupVersion, task task, live *metav1.PartialObjectMetadata) error {
	dependents := t.graph.dependentsOf(live.UID, live.Namespace)
	if len(dependents) == 0 {
		return t.delete(ctx, gv, task.coordinates, live, policyOf(live))
	}
	if slices.ContainsFunc(dependents, func(d dependent) bool { return d.foreground }) {
		unblocked := slices.Clone(live.OwnerReferences)
		for i := range unblocked {
			unblocked[i].BlockOwnerDeletion = nil
		}
		if !slices.EqualFunc(unblocked, live.OwnerReferences, func(a, b metav1.OwnerReference) bool {
			return (a.BlockOwnerDeletion == nil) == (b.BlockOwnerDeletion == nil)
		}) {
			// The deletion needs the version that this makes; it comes back for it.
			if err := t.strip(ctx, gv, task.coordinates, live, unblocked); err != nil {
				return err
			}
			return &laterError{10 * time.Millisecond, "its references are unblocked first"}
		}
	}
	return t.delete(ctx, gv, task.coordinates, live, metav1.DeletePropagationForeground)
}

// policyOf is how an object wishes to be deleted.
func policyOf(o *metav1.PartialObjectMetadata) metav1.DeletionPropagation {
	switch {
	case slices.Contains(o.Finalizers, metav1.FinalizerOrphanDependents):
		return metav1.DeletePropagationOrphan
	case slices.Contains(o.Finalizers, metav1.FinalizerDeleteDependents):
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}

// delete deletes exactly what was judged: this object, in this version.
func (t *term) delete(ctx context.Context, gv GroupVersion, at coordinates, live *metav1.PartialObjectMetadata, policy metav1.DeletionPropagation) error {
	options := metav1.DeleteOptions{
		PropagationPolicy: &policy,
		Preconditions:     &metav1.Preconditions{UID: &live.UID, ResourceVersion: &live.ResourceVersion},
	}
	err := t.write(ctx, gv, func(ctx context.Context) error {
		return t.cfg.Client.Resource(at.GroupVersionResource).Namespace(at.namespace).Delete(ctx, at.name, options)
	})
	switch {
	case isGone(err, gv, at):
		return nil
	case err != nil:
		return fmt.Errorf("delete %s %s: %w", at.Resource, at.name, err)
	}
	t.cfg.Metrics.Deleted.Inc()
	t.log.Info("deleted: none of its owners exists any more, or they wait for it", zap.Stringer("resource", at.GroupVersionResource),
		zap.String("namespace", at.namespace), zap.String("name", at.name), zap.String("policy", string(policy)))
	return nil
}

// requestTimeout is for everything that a worker asks or writes.
const requestTimeout = 10 * time.Second

// errNotLeading: another replica collects by now.
var errNotLeading = errors.New("this replica does not lead any more")

// ask makes one request of a group-version that answers, when it has a seat.
func (t *term) ask(ctx context.Context, gv GroupVersion, request func(context.Context) error) error {
	if !t.rules.serves(gv) {
		return &unsureError{gv, "is not available: " + gv.Reason}
	}
	leave, err := t.turns.enter(gv)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err = request(bounded)
	leave(ctx.Err() != nil || answered(err))
	return err
}

// write is ask for what changes something.
func (t *term) write(ctx context.Context, gv GroupVersion, request func(context.Context) error) error {
	if !t.leads() {
		return errNotLeading
	}
	return t.ask(ctx, gv, request)
}

// answered reports whether somebody was there who could say what is the matter with the object. Errors of the server
// itself count as that: one broken object must not keep its whole group-version waiting.
func answered(err error) bool {
	var status apierrors.APIStatus
	if err == nil {
		return true
	}
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status().Code {
	case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout, http.StatusTooManyRequests:
		return false
	}
	return true
}

// serving is the group-version through which an object is reached.
func (t *term) serving(at coordinates) (GroupVersion, error) {
	d := t.cfg.Discovery()
	if d == nil || !d.Synced {
		return GroupVersion{}, &laterError{time.Second, "discovery is not complete yet"}
	}
	gv := d.lookup(at.GroupVersion())
	if _, ok := gv.resource(at.Resource); !ok {
		return gv, &unsureError{gv, fmt.Sprintf("does not serve %s", at.Resource)}
	}
	return gv, nil
}

// change is a merge patch of metadata. The UID and the resourceVersion make it one of the object that was read: the
// lists that it replaces were made from that.
type change struct {
	Metadata struct {
		UID             types.UID               `json:"uid"`
		ResourceVersion string                  `json:"resourceVersion"`
		OwnerReferences []metav1.OwnerReference `json:"ownerReferences,omitzero"`
		Finalizers      []string                `json:"finalizers,omitzero"`
	} `json:"metadata"`
}

func changeOf(live *metav1.PartialObjectMetadata) *change {
	c := &change{}
	c.Metadata.UID, c.Metadata.ResourceVersion = live.UID, live.ResourceVersion
	return c
}

// strip leaves an object the owner references to keep.
func (t *term) strip(ctx context.Context, gv GroupVersion, at coordinates, live *metav1.PartialObjectMetadata, keep []metav1.OwnerReference) error {
	c := changeOf(live)
	c.Metadata.OwnerReferences = append([]metav1.OwnerReference{}, keep...)
	return t.patch(ctx, gv, at, c)
}

// release removes a finalizer.
func (t *term) release(ctx context.Context, gv GroupVersion, at coordinates, live *metav1.PartialObjectMetadata, finalizer string) error {
	c := changeOf(live)
	c.Metadata.Finalizers = slices.DeleteFunc(append([]string{}, live.Finalizers...), func(f string) bool { return f == finalizer })
	return t.patch(ctx, gv, at, c)
}

// patch does nothing to an object that is gone.
func (t *term) patch(ctx context.Context, gv GroupVersion, at coordinates, c *change) error {
	body, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	err = t.write(ctx, gv, func(ctx context.Context) error {
		_, err := t.cfg.Client.Resource(at.GroupVersionResource).Namespace(at.namespace).
			Patch(ctx, at.name, types.MergePatchType, body, metav1.PatchOptions{})
		return err
	})
	if err != nil && !isGone(err, gv, at) {
		return fmt.Errorf("patch %s %s: %w", at.Resource, at.name, err)
	}
	return nil
}
