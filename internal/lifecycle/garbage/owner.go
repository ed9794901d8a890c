package garbage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// ownerState is the state of a referenced owner.
type ownerState int

const (
	// ownerPresent: the owner exists.
	ownerPresent ownerState = iota
	// ownerWaiting: the owner is being deleted and waits for its dependents.
	ownerWaiting
	// ownerGone: the owner does not exist, see the package documentation.
	ownerGone
	// ownerMisplaced: the owner is in a namespace from which it cannot own this dependent. An Event reports it, and nothing is
	// deleted.
	ownerMisplaced
)

// rules contains the checks before an owner counts as deleted. Tests remove them one at a time, to show that each is needed.
type rules struct {
	// serves reports whether the group-version responds now.
	serves func(GroupVersion) bool
	// isNotFound reports whether the response states that the object itself does not exist.
	isNotFound func(err error, r Resource, name string) bool
	// confirmTwice reports whether a second response is needed that the owner does not exist.
	confirmTwice func(GroupVersion) bool
	// knownObjects returns the locations of objects with the UID, according to the watches.
	knownObjects func(*graph, ownerRef) []coordinates
	// watchComplete reports whether the owner's resource has been listed completely or cannot be watched.
	watchComplete func(*graph, schema.GroupResource, Resource) bool
}

func defaultRules() rules {
	return rules{
		serves:       func(g GroupVersion) bool { return g.Current },
		isNotFound:   isNotFound,
		confirmTwice: func(g GroupVersion) bool { return !g.Local },
		knownObjects: func(g *graph, c ownerRef) []coordinates { return g.locate(c.uid) },
		watchComplete: func(g *graph, gr schema.GroupResource, r Resource) bool {
			synced, _ := g.synced(resourceID{GroupResource: gr})
			return synced || !r.Collectable
		},
	}
}

// retryLaterError reports that the check has to be repeated later.
type retryLaterError struct {
	after  time.Duration
	reason string
}

func (e *retryLaterError) Error() string { return e.reason }

// checkOwner returns the state of a referenced owner, if necessary after a request to the owner's server.
func (t *term) checkOwner(ctx context.Context, namespace string, ref metav1.OwnerReference) (ownerState, error) {
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	c := ownerRef{ref.APIVersion, ref.Kind, namespace, ref.Name, ref.UID}
	d := t.cfg.Discovery()
	if d == nil || !d.Synced {
		return ownerPresent, &retryLaterError{time.Second, "discovery is not complete yet"}
	}
	if state, found, err := t.checkHiddenOwner(ctx, d, gvk, c); found || err != nil {
		return state, err
	}
	gv, resource, served := d.kind(gvk)
	switch {
	case !served && t.goneOwners.deletedUIDs.Contains(ref.UID):
		return ownerGone, nil
	case !t.rules.serves(gv):
		return ownerPresent, &undecidedError{gv, "is not available: " + gv.Reason}
	case !served:
		return ownerPresent, &undecidedError{gv, "does not serve " + ref.Kind}
	case resource.Namespaced && namespace == "":
		return ownerMisplaced, nil
	}
	at := t.rules.knownObjects(t.graph, c)
	if len(at) == 0 && t.goneOwners.isConfirmed(c) {
		return ownerGone, nil
	}
	place := coordinates{GroupVersionResource: gv.WithResource(resource.Name), name: ref.Name, uid: ref.UID}
	if resource.Namespaced {
		place.namespace = namespace
	}
	owner, err := t.get(ctx, gv, place)
	switch {
	case err == nil && owner.UID == ref.UID:
		t.goneOwners.forget(c)
		return stateOf(owner), nil
	case err != nil && !t.rules.isNotFound(err, resource, ref.Name):
		return ownerPresent, err
	}
	return t.confirmGone(c, gv, resource, place)
}

// checkHiddenOwner looks up an owner among the objects hidden by an extension server, because the reference was written while
// clients could reach it. The extension server may have another object of the same name. Therefore an owner counts as deleted
// only if neither the hidden objects nor the extension server have it. found is false if it is not among the hidden objects.
func (t *term) checkHiddenOwner(ctx context.Context, d *Discovery, gvk schema.GroupVersionKind, c ownerRef) (state ownerState, found bool, err error) {
	gv, resource, ok := d.hiddenKind(gvk)
	if !ok || resource.Namespaced && c.namespace == "" {
		return ownerPresent, false, nil
	}
	place := coordinates{GroupVersionResource: gv.WithResource(resource.Name), name: c.name, uid: c.uid, hidden: true}
	if resource.Namespaced {
		place.namespace = c.namespace
	}
	owner, err := t.get(ctx, gv, place)
	switch {
	case err == nil && owner.UID == c.uid:
		return stateOf(owner), true, nil
	case err != nil && !isNotFound(err, resource, c.name):
		return ownerPresent, false, err
	}
	if synced, _ := t.graph.synced(gv.resourceID(resource.Name)); !synced {
		return ownerPresent, false, &retryLaterError{2 * time.Second, "not all hidden " + place.GroupResource().String() + " have been seen yet"}
	}
	if slices.ContainsFunc(t.graph.locate(c.uid), func(at coordinates) bool { return at == place }) {
		return ownerPresent, false, &retryLaterError{time.Second, "the watch of hidden " + place.GroupResource().String() + " still shows " + c.name}
	}
	return ownerPresent, false, nil
}

func stateOf(owner *metav1.PartialObjectMetadata) ownerState {
	if owner.DeletionTimestamp != nil && slices.Contains(owner.Finalizers, metav1.FinalizerDeleteDependents) {
		return ownerWaiting
	}
	return ownerPresent
}

// confirmGone applies the remaining rules after a response that an owner does not exist.
func (t *term) confirmGone(c ownerRef, gv GroupVersion, resource Resource, place coordinates) (ownerState, error) {
	gr := place.GroupResource()
	if known := t.rules.knownObjects(t.graph, c); len(known) > 0 {
		there := func(at coordinates) bool { // in any watched version
			return !at.hidden && at.GroupResource() == gr && at.namespace == place.namespace && at.name == place.name
		}
		if slices.ContainsFunc(known, there) {
			return ownerPresent, &retryLaterError{time.Second, "the watch of " + gr.String() + " still shows " + place.name}
		}
		return ownerMisplaced, nil
	}
	if !t.rules.watchComplete(t.graph, gr, resource) {
		return ownerPresent, &retryLaterError{2 * time.Second, "not all " + gr.String() + " have been seen yet"}
	}
	// The backend may have failed, or its APIService may have been replaced, during the request.
	if d := t.cfg.Discovery(); d == nil || !d.Synced || !d.lookup(gv.GroupVersion).equal(gv) {
		return ownerPresent, &retryLaterError{time.Second, gv.String() + " changed while it answered"}
	}
	if t.rules.confirmTwice(gv) {
		if wait := t.goneOwners.report(c); wait > 0 {
			return ownerPresent, &retryLaterError{wait, gv.String() + " says that " + place.name + " is gone; it is asked once more"}
		}
	}
	t.goneOwners.confirm(c)
	return ownerGone, nil
}

// isNotFound reports whether an error is a response by the resource's server that the object does not exist. A 404 may also
// come from a proxy or a server that does not serve the path (kubernetes/kubernetes#104342), or refer to the namespace.
func isNotFound(err error, r Resource, name string) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsNotFound(err) || status.Status().Code != http.StatusNotFound {
		return false
	}
	details := status.Status().Details
	if details == nil || details.Name != name || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false
	}
	return details.Kind == "" || strings.EqualFold(details.Kind, r.Name) || strings.EqualFold(details.Kind, r.Kind)
}

// isGone is isNotFound for a known object.
func isGone(err error, gv GroupVersion, at coordinates) bool {
	r, _ := gv.resource(at.Resource)
	return isNotFound(err, r, at.name)
}

// get fetches the metadata of the object with this name. The UID may differ.
func (t *term) get(ctx context.Context, gv GroupVersion, at coordinates) (*metav1.PartialObjectMetadata, error) {
	var object *metav1.PartialObjectMetadata
	err := t.request(ctx, gv, func(ctx context.Context) (err error) {
		object, err = t.objects(at).Get(ctx, at.name, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return nil, err
	}
	if object.Name != at.name || object.Namespace != at.namespace || object.UID == "" {
		return nil, fmt.Errorf("%s answered with something other than %s", gv.GroupVersion, at.name)
	}
	return object, nil
}

const (
	// cacheSize bounds the caches of deleted owners. Evicted owners are looked up again.
	cacheSize = 4096
	// confirmedTTL is how long a confirmed deletion is cached. UIDs are never reused, but the backend's response may have been
	// wrong.
	confirmedTTL = 30 * time.Second
	// confirmDelay is the pause between a backend's first report that an owner does not exist and the second request. A server
	// that starts with an empty cache fills it in that time.
	confirmDelay = 5 * time.Second
	// reportTTL is how long a first report is valid.
	reportTTL = 5 * time.Minute
)

// ownerRef is an owner as its dependents name it. Dependents with the same ownerRef share the result.
type ownerRef struct {
	apiVersion, kind, namespace, name string
	uid                               types.UID
}

// goneOwners caches owners that do not exist.
type goneOwners struct {
	mu sync.Mutex // makes the read and write of an entry atomic
	// confirmed contains when the deletion of an owner was confirmed.
	confirmed *lru.Cache[ownerRef, time.Time]
	// reported contains when a backend first reported it.
	reported *lru.Cache[ownerRef, time.Time]
	// deletedUIDs contains UIDs that a watch of the local etcd reported as deleted. This is proof even if their kind is no
	// longer served: a CRD disappears a moment after its objects.
	deletedUIDs *lru.Cache[types.UID, struct{}]
}

func newGoneOwners() *goneOwners {
	return &goneOwners{confirmed: newCache[ownerRef, time.Time](), reported: newCache[ownerRef, time.Time](), deletedUIDs: newCache[types.UID, struct{}]()}
}

func newCache[K comparable, V any]() *lru.Cache[K, V] {
	c, err := lru.New[K, V](cacheSize)
	if err != nil {
		panic(err) // only for a size below one
	}
	return c
}

func (a *goneOwners) isConfirmed(c ownerRef) bool {
	since, ok := a.confirmed.Get(c)
	return ok && time.Since(since) < confirmedTTL
}

func (a *goneOwners) confirm(c ownerRef) { a.confirmed.Add(c, time.Now()) }

// report records a report that an owner does not exist, and returns the time until the report counts, zero if it counts now.
func (a *goneOwners) report(c ownerRef) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	first, ok := a.reported.Get(c)
	if age := time.Since(first); ok && age < reportTTL {
		return max(0, confirmDelay-age)
	}
	a.reported.Add(c, time.Now())
	return confirmDelay
}

// forget removes an owner that exists.
func (a *goneOwners) forget(c ownerRef) {
	a.reported.Remove(c)
	a.confirmed.Remove(c)
}
