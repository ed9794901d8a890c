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
	"k8s.io/client-go/metadata"
)

// recheckInterval is the interval between checks of an object with an owner that exists but is not watched.
const recheckInterval = time.Minute

// process checks one object and acts on the result. If again is positive, the object is checked again after that time.
func (t *term) process(ctx context.Context, k key) (again time.Duration, err error) {
	task, ok := t.graph.task(k)
	switch {
	case !ok:
		return 0, nil
	case task.orphan:
		return 0, t.orphan(ctx, task)
	case task.foreground:
		return t.foreground(ctx, task)
	case !task.mustCheck:
		return 0, nil
	}
	live, gv, err := t.getLive(ctx, task.coordinates)
	if err != nil || live == nil || live.DeletionTimestamp != nil || len(live.OwnerReferences) == 0 {
		return 0, err
	}
	states, err := t.classifyOwners(ctx, task.coordinates, live)
	if err != nil {
		return 0, err
	}
	switch {
	case len(states.present) > 0 && len(states.gone)+len(states.waiting) > 0:
		return states.again, t.setOwnerReferences(ctx, gv, task.coordinates, live, states.present)
	case len(states.present) > 0:
		return states.again, nil
	case len(states.waiting) > 0:
		return 0, t.deleteForWaiting(ctx, gv, task, live)
	}
	return 0, t.delete(ctx, gv, task.coordinates, live, policyOf(live))
}

// getLive returns the current object, or nil if it no longer exists, which its watch will report.
func (t *term) getLive(ctx context.Context, at coordinates) (*metav1.PartialObjectMetadata, GroupVersion, error) {
	gv, err := t.servingVersion(at)
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

// ownerStates contains the owner references of an object by the state of the owner.
type ownerStates struct {
	present, waiting, gone []metav1.OwnerReference
	again                  time.Duration
}

// classifyOwners checks every reference. It returns an error if one is undecided, because that one could change the outcome.
func (t *term) classifyOwners(ctx context.Context, at coordinates, o *metav1.PartialObjectMetadata) (ownerStates, error) {
	var states ownerStates
	for _, ref := range o.OwnerReferences {
		s, err := t.checkOwner(ctx, o.Namespace, ref)
		if err != nil {
			return states, fmt.Errorf("owner %s %s: %w", ref.Kind, ref.Name, err)
		}
		switch s {
		case ownerGone:
			states.gone = append(states.gone, ref)
		case ownerWaiting:
			states.waiting = append(states.waiting, ref)
		case ownerMisplaced:
			states.present = append(states.present, ref)
			t.events.misplaced(ctx, t.kindOf(at), o, ref)
		case ownerPresent:
			states.present = append(states.present, ref)
			if len(t.graph.locate(ref.UID)) == 0 {
				states.again = recheckInterval
			}
		}
	}
	return states, nil
}

// deleteForWaiting deletes an object that its owner waits for. It uses foreground deletion if the object has dependents. Two
// objects that own each other would wait forever, so the references of an object with waiting dependents are unblocked first.
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
			// The deletion needs the resource version that this update creates, so it happens on the next attempt.
			if err := t.setOwnerReferences(ctx, gv, task.coordinates, live, unblocked); err != nil {
				return err
			}
			return &retryLaterError{10 * time.Millisecond, "its references are unblocked first"}
		}
	}
	return t.delete(ctx, gv, task.coordinates, live, metav1.DeletePropagationForeground)
}

// policyOf returns the propagation policy that corresponds to an object's finalizers.
func policyOf(o *metav1.PartialObjectMetadata) metav1.DeletionPropagation {
	switch {
	case slices.Contains(o.Finalizers, metav1.FinalizerOrphanDependents):
		return metav1.DeletePropagationOrphan
	case slices.Contains(o.Finalizers, metav1.FinalizerDeleteDependents):
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}

// delete deletes exactly the checked object at the checked resource version.
func (t *term) delete(ctx context.Context, gv GroupVersion, at coordinates, live *metav1.PartialObjectMetadata, policy metav1.DeletionPropagation) error {
	options := metav1.DeleteOptions{
		PropagationPolicy: &policy,
		Preconditions:     &metav1.Preconditions{UID: &live.UID, ResourceVersion: &live.ResourceVersion},
	}
	err := t.write(ctx, gv, func(ctx context.Context) error {
		return t.objects(at).Delete(ctx, at.name, options)
	})
	switch {
	case isGone(err, gv, at):
		return nil
	case err != nil:
		return fmt.Errorf("delete %s %s: %w", at.Resource, at.name, err)
	}
	t.cfg.Metrics.Deleted.Inc()
	t.log.Info("garbage collector deleted an object", zap.Stringer("resource", at.GroupVersionResource),
		zap.String("namespace", at.namespace), zap.String("name", at.name), zap.String("policy", string(policy)))
	return nil
}

// objects returns the client for the objects of a resource in a namespace.
func (t *term) objects(at coordinates) metadata.ResourceInterface {
	client := t.cfg.Client
	if at.hidden {
		client = t.cfg.Hidden
	}
	return client.Resource(at.GroupVersionResource).Namespace(at.namespace)
}

// requestTimeout bounds every request of a worker.
const requestTimeout = 10 * time.Second

// errNotLeading reports that another replica leads.
var errNotLeading = errors.New("this replica does not lead any more")

// request makes one request to a group-version that is available and below its limit.
func (t *term) request(ctx context.Context, gv GroupVersion, request func(context.Context) error) error {
	if !t.rules.serves(gv) {
		return &undecidedError{gv, "is not available: " + gv.Reason}
	}
	done, err := t.limiter.acquire(gv)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err = request(bounded)
	done(ctx.Err() != nil || isAnswer(err))
	return err
}

// write is request for writes.
func (t *term) write(ctx context.Context, gv GroupVersion, request func(context.Context) error) error {
	if !t.leads() {
		return errNotLeading
	}
	return t.request(ctx, gv, request)
}

// isAnswer reports whether the server sent a response about the object. Internal server errors count, because one broken object
// must not pause its whole group-version.
func isAnswer(err error) bool {
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

// servingVersion returns the group-version that serves an object.
func (t *term) servingVersion(at coordinates) (GroupVersion, error) {
	d := t.cfg.Discovery()
	if d == nil || !d.Synced {
		return GroupVersion{}, &retryLaterError{time.Second, "discovery is not complete yet"}
	}
	gv := d.find(at.GroupVersion(), at.hidden)
	if _, ok := gv.resource(at.Resource); !ok {
		return gv, &undecidedError{gv, fmt.Sprintf("does not serve %s", at.Resource)}
	}
	return gv, nil
}

// change is a merge patch of metadata. It carries the UID and the resource version of the object that was read, because it
// replaces lists derived from that version.
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

// setOwnerReferences replaces an object's owner references with keep.
func (t *term) setOwnerReferences(ctx context.Context, gv GroupVersion, at coordinates, live *metav1.PartialObjectMetadata, keep []metav1.OwnerReference) error {
	c := changeOf(live)
	c.Metadata.OwnerReferences = append([]metav1.OwnerReference{}, keep...)
	return t.patch(ctx, gv, at, c)
}

func (t *term) removeFinalizer(ctx context.Context, gv GroupVersion, at coordinates, live *metav1.PartialObjectMetadata, finalizer string) error {
	c := changeOf(live)
	c.Metadata.Finalizers = slices.DeleteFunc(append([]string{}, live.Finalizers...), func(f string) bool { return f == finalizer })
	return t.patch(ctx, gv, at, c)
}

// patch ignores an object that no longer exists.
func (t *term) patch(ctx context.Context, gv GroupVersion, at coordinates, c *change) error {
	body, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	err = t.write(ctx, gv, func(ctx context.Context) error {
		_, err := t.objects(at).Patch(ctx, at.name, types.MergePatchType, body, metav1.PatchOptions{})
		return err
	})
	if err != nil && !isGone(err, gv, at) {
		return fmt.Errorf("patch %s %s: %w", at.Resource, at.name, err)
	}
	return nil
}
