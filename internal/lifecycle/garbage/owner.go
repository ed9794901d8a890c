package garbage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// standing is what an owner reference is worth.
type standing int

const (
	// living owners keep their dependents.
	living standing = iota
	// waiting owners are being deleted and go when their dependents have gone.
	waiting
	// gone owners do not exist, see the package documentation.
	gone
	// misplaced owners live where this dependent cannot be owned from. They are told about, and nothing is deleted.
	misplaced
)

// rules are the reasons for which an owner that looks absent may not be. Tests take them away one by one, to see that
// each is needed.
type rules struct {
	// serves: the group-version answers now.
	serves func(GroupVersion) bool
	// denies: an answer says that the object itself is not there.
	denies func(err error, r Resource, name string) bool
	// distrust: one word that an owner is gone is not enough.
	distrust func(GroupVersion) bool
	// bearers are where watches know objects with the UID.
	bearers func(*graph, claim) []coordinates
	// complete: the watch of the owner's kind has seen everything, or there can be none.
	complete func(*graph, schema.GroupResource, Resource) bool
}

func soundRules() rules {
	return rules{
		serves:   func(g GroupVersion) bool { return g.Current },
		denies:   denies,
		distrust: func(g GroupVersion) bool { return !g.Local },
		bearers:  func(g *graph, c claim) []coordinates { return g.where(c.uid) },
		complete: func(g *graph, gr schema.GroupResource, r Resource) bool {
			synced, _ := g.synced(gr)
			return synced || !r.Collectable
		},
	}
}

// laterError: the question is a good one, but for a later moment.
type laterError struct {
	after time.Duration
	why   string
}

func (e *laterError) Error() string { return e.why }

// judge finds out what an owner reference of an object is worth, if need be by asking whoever serves the owner.
func (t *term) judge(ctx context.Context, namespace string, ref metav1.OwnerReference) (standing, error) {
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	c := claim{ref.APIVersion, ref.Kind, namespace, ref.Name, ref.UID}
	d := t.cfg.Discovery()
	if d == nil || !d.Synced {
		return living, &laterError{time.Second, "discovery is not complete yet"}
	}
	gv, resource, served := d.kind(gvk)
	switch {
	case !served && t.absences.buried.Contains(ref.UID):
		return gone, nil
	case !t.rules.serves(gv):
		return living, &unsureError{gv, "is not available: " + gv.Reason}
	case !served:
		return living, &unsureError{gv, "does not serve " + ref.Kind}
	case resource.Namespaced && namespace == "":
		return misplaced, nil
	}
	at := t.rules.bearers(t.graph, c)
	if len(at) == 0 && t.absences.known(c) {
		return gone, nil
	}
	place := coordinates{gv.WithResource(resource.Name), "", ref.Name, ref.UID}
	if resource.Namespaced {
		place.namespace = namespace
	}
	owner, err := t.get(ctx, gv, place)
	switch {
	case err == nil && owner.UID == ref.UID:
		t.absences.alive(c)
		return standingOf(owner), nil
	case err != nil && !t.rules.denies(err, resource, ref.Name):
		return living, err
	}
	return t.confirm(c, gv, resource, place)
}

func standingOf(owner *metav1.PartialObjectMetadata) standing {
	if owner.DeletionTimestamp != nil && slices.Contains(owner.Finalizers, metav1.FinalizerDeleteDependents) {
		return waiting
	}
	return living
}

// confirm is asked when an owner was just said to be gone, and looks for a reason to doubt it.
func (t *term) confirm(c claim, gv GroupVersion, resource Resource, place coordinates) (standing, error) {
	gr := place.GroupResource()
	if known := t.rules.bearers(t.graph, c); len(known) > 0 {
		there := func(at coordinates) bool { // in whichever version it is watched
			return at.GroupResource() == gr && at.namespace == place.namespace && at.name == place.name
		}
		if slices.ContainsFunc(known, there) {
			return living, &laterError{time.Second, "the watch of " + gr.String() + " still shows " + place.name}
		}
		return misplaced, nil
	}
	if !t.rules.complete(t.graph, gr, resource) {
		return living, &laterError{2 * time.Second, "not all " + gr.String() + " have been seen yet"}
	}
	// The backend may have died, or its registration been replaced, while it answered.
	if d := t.cfg.Discovery(); d == nil || !d.Synced || !d.lookup(gv.GroupVersion).same(gv) {
		return living, &laterError{time.Second, gv.String() + " changed while it answered"}
	}
	if t.rules.distrust(gv) {
		if wait := t.absences.hear(c); wait > 0 {
			return living, &laterError{wait, gv.String() + " says that " + place.name + " is gone; it is asked once more"}
		}
	}
	t.absences.prove(c)
	return gone, nil
}

// denies reports whether an error is the word of whoever serves the resource that the object is not there. A 404 may
// also be a proxy's, a server's that does not know the path (kubernetes/kubernetes#104342), or about the namespace.
func denies(err error, r Resource, name string) bool {
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

// isGone is denies for an object that is known.
func isGone(err error, gv GroupVersion, at coordinates) bool {
	r, _ := gv.resource(at.Resource)
	return denies(err, r, at.name)
}

// get asks for the metadata of an object. An answer is the object of that name, whatever its UID.
func (t *term) get(ctx context.Context, gv GroupVersion, at coordinates) (*metav1.PartialObjectMetadata, error) {
	var object *metav1.PartialObjectMetadata
	err := t.ask(ctx, gv, func(ctx context.Context) (err error) {
		object, err = t.cfg.Client.Resource(at.GroupVersionResource).Namespace(at.namespace).Get(ctx, at.name, metav1.GetOptions{})
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
