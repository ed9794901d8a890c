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

const (
	// remembered bounds what is remembered of owners that are gone. What was forgotten is asked again.
	remembered = 4096
	// absenceLife is how long a proven absence spares the question. UIDs do not come back; backends that were wrong do.
	absenceLife = 30 * time.Second
	// secondLook is how long after a backend first said that an owner is gone it is asked again. A server that starts
	// with an empty cache fills it in that time.
	secondLook = 5 * time.Second
	// secondLookLife: a first word older than this is a first word no more.
	secondLookLife = 5 * time.Minute
)

// claim is an owner as a dependent names it. Several dependents name it alike, and share what was found out.
type claim struct {
	apiVersion, kind, namespace, name string
	uid                               types.UID
}

// absences is what is known of owners that are gone.
type absences struct {
	mu sync.Mutex // makes read and write of one entry one step
	// proven: since when an owner is known to be gone.
	proven *lru.Cache[claim, time.Time]
	// heard: when a backend said so for the first time.
	heard *lru.Cache[claim, time.Time]
	// buried UIDs were seen to end by a watch of our own etcd, which is proof even when their kind is no longer served:
	// a definition that is deleted takes its objects along and is gone a moment later.
	buried *lru.Cache[types.UID, struct{}]
}

func newAbsences() *absences {
	return &absences{proven: bounded[claim, time.Time](), heard: bounded[claim, time.Time](), buried: bounded[types.UID, struct{}]()}
}

func bounded[K comparable, V any]() *lru.Cache[K, V] {
	c, err := lru.New[K, V](remembered)
	if err != nil {
		panic(err) // only for a size below one
	}
	return c
}

func (a *absences) known(c claim) bool {
	since, ok := a.proven.Get(c)
	return ok && time.Since(since) < absenceLife
}

func (a *absences) prove(c claim) { a.proven.Add(c, time.Now()) }

// hear takes in that a backend said an owner is gone, and reports how long until it may be believed: zero is now.
func (a *absences) hear(c claim) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	first, ok := a.heard.Get(c)
	if age := time.Since(first); ok && age < secondLookLife {
		return max(0, secondLook-age)
	}
	a.heard.Add(c, time.Now())
	return secondLook
}

// alive takes back what was heard.
func (a *absences) alive(c claim) {
	a.heard.Remove(c)
	a.proven.Remove(c)
}
