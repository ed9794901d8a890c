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

// ownerState is the state of the owner that a reference names.
type ownerState int

const (
	// ownerPresent: the owner exists.
	ownerPresent ownerState = iota
	// ownerWaiting: the owner is being deleted and waits for its dependents.
	ownerWaiting
	// ownerGone: the owner does not exist, see the package documentation.
	ownerGone
	// ownerMisplaced: the owner is in a namespace from which it cannot own this dependent. An Event reports it, and nothing
	// is deleted.
	ownerMisplaced
)

// rules are the checks before an owner counts as gone. Tests remove them one by one, to show that each is needed.
type rules struct {
	// serves: the group-version answers now.
	serves func(GroupVersion) bool
	// isNotFound: the response says that the object itself does not exist.
	isNotFound func(err error, r Resource, name string) bool
	// confirmTwice: one report that an owner is gone is not enough.
	confirmTwice func(GroupVersion) bool
	// knownObjects: where watches know objects with the UID.
	knownObjects func(*graph, ownerRef) []coordinates
	// watchComplete: the owner's resource has been listed completely, or cannot be watched.
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

// retryLaterError: the check has to be repeated later.
type retryLaterError struct {
	after time.Duration
	why   string
}

func (e *retryLaterError) Error() string { return e.why }

// checkOwner returns the state of the owner that a reference names, if necessary by a request to the server of the owner.
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

// checkHiddenOwner looks for an owner among the objects that an extension server hides: its references were written while
// clients could reach it. The server may have another object of the name, so that an owner counts as gone only when it is
// not among the hidden ones and the server says so too. found is false when it is not among them.
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

// confirmGone is called when a request has just reported an owner gone, and applies the remaining rules.
func (t *term) confirmGone(c ownerRef, gv GroupVersion, resource Resource, place coordinates) (ownerState, error) {
	gr := place.GroupResource()
	if known := t.rules.knownObjects(t.graph, c); len(known) > 0 {
		there := func(at coordinates) bool { // in whichever version it is watched
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
	// The backend may have died, or its registration been replaced, during the request.
	if d := t.cfg.Discovery(); d == nil || !d.Synced || !d.lookup(gv.GroupVersion).same(gv) {
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

// isNotFound reports whether an error is a response of the resource's server that the object does not exist. A 404 may also
// come from a proxy or a server that does not know the path (kubernetes/kubernetes#104342), or be about the namespace.
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

// isGone is isNotFound for an object that is known.
func isGone(err error, gv GroupVersion, at coordinates) bool {
	r, _ := gv.resource(at.Resource)
	return isNotFound(err, r, at.name)
}

// get requests the metadata of the object of a name, whatever its UID.
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
	// cacheSize bounds the caches of owners that are gone. What was evicted is looked up again.
	cacheSize = 4096
	// confirmedTTL is how long a confirmed absence is not looked up again. UIDs are never reused, but a backend may have
	// been wrong.
	confirmedTTL = 30 * time.Second
	// confirmDelay is how long after a backend first reported that an owner is gone it is asked again. A server that starts
	// with an empty cache fills it in that time.
	confirmDelay = 5 * time.Second
	// reportTTL is how long a first report counts.
	reportTTL = 5 * time.Minute
)

// ownerRef is an owner as its dependents name it. Dependents with the same ownerRef share the result.
type ownerRef struct {
	apiVersion, kind, namespace, name string
	uid                               types.UID
}

// goneOwners caches which owners are gone.
type goneOwners struct {
	mu sync.Mutex // makes read and write of one entry one step
	// confirmed: since when an owner is known to be gone.
	confirmed *lru.Cache[ownerRef, time.Time]
	// reported: when a backend first reported it.
	reported *lru.Cache[ownerRef, time.Time]
	// deletedUIDs were deleted according to a watch of our own etcd, which is proof even when their kind is no longer
	// served: a CRD is gone a moment after its objects.
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

// report records that a backend reported an owner gone, and returns how long until that counts; zero is now.
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
