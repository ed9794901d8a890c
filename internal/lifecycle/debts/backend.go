package debts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
)

const (
	// inProcessHost is the host of URLs whose host is not used.
	inProcessHost = "https://portico.invalid"
	// maxDocument bounds a backend's discovery document.
	maxDocument = 4 << 20
	// dateTolerance is how far the Date of a response may be ahead of our clock without being taken for a difference.
	dateTolerance = 2 * time.Second
)

// fetchResources asks the backend itself for its namespaced resources that can be deleted. The merged discovery document
// may be a minute old, and lacks a backend that was never reached before its debt was recorded. lag is how far the clock
// of the backend is behind ours.
func fetchResources(ctx context.Context, backend http.RoundTripper, gv schema.GroupVersion) (names []string, lag time.Duration, err error) {
	var list metav1.APIResourceList
	err = CallBackend(ctx, func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, inProcessHost+"/apis/"+gv.String(), nil)
		if err != nil {
			return err
		}
		r.Header.Set("Accept", "application/json")
		resp, err := backend.RoundTrip(r)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }() // it was read, or its error was met
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("the backend answered %d", resp.StatusCode)
		}
		lag = clockLag(resp, time.Now())
		return json.NewDecoder(io.LimitReader(resp.Body, maxDocument)).Decode(&list)
	})
	if err != nil {
		return nil, 0, fmt.Errorf("ask for the resources of %s: %w", gv, err)
	}
	for _, r := range list.APIResources {
		if r.Namespaced && !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "delete") && slices.Contains(r.Verbs, "list") {
			names = append(names, r.Name)
		}
	}
	return names, lag, nil
}

// clockLag returns how far the clock of a response is behind now; zero without a Date. The Date is truncated to the second
// and took a while to arrive, so that the clock looks a little further behind than it is. That keeps an object rather than
// deleting it, and costs nothing, since the backend was down for longer than that when the debt was recorded.
func clockLag(resp *http.Response, now time.Time) time.Duration {
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return 0
	}
	behind := now.Sub(date)
	if behind < 0 && behind > -dateTolerance {
		return 0
	}
	return behind
}

// NamespaceUIDAnnotation names the namespace that an object belongs to, for backends that set it. It alone decides,
// whatever the age of the object.
//
//reference:annotations Annotations of objects at extension servers
const NamespaceUIDAnnotation = "portico.dev/namespace-uid"

// decision is what happens to an object.
type decision int

const (
	// keepObject: it belongs to another namespace, or is being deleted already.
	keepObject decision = iota
	// deleteObject: it belonged to the finalized namespace.
	deleteObject
	// uncertain: it cannot be told from an object of a new namespace of the same name, or it has no UID, so that another
	// object of its name could be deleted instead.
	uncertain
)

// decide decides about one object in a namespace of that name. The namespace existed for FinalizeDelay after the debt was
// recorded: what is older, by the clock of the backend, belonged to it, and what is younger belongs to a new namespace.
//
// An object that is being deleted is kept: other controllers remove its finalizers, and need the group-version to be
// available for that.
func (d Debt) decide(o *metav1.PartialObjectMetadata) decision {
	uid, annotated := o.Annotations[NamespaceUIDAnnotation]
	switch {
	case o.Namespace != "" && o.Namespace != d.Namespace:
		return keepObject // the backend ignores the namespace in the request
	case annotated && uid != string(d.NamespaceUID), o.DeletionTimestamp != nil:
		return keepObject
	case !annotated && o.CreationTimestamp.IsZero():
		return uncertain
	case !annotated && o.CreationTimestamp.After(d.Since):
		return keepObject
	case o.UID == "":
		return uncertain
	}
	return deleteObject
}

// Resource may hold objects of a namespace. Served is false for one that the backend does not list any more.
type Resource struct {
	schema.GroupVersionResource
	Served bool
}

// deleteObjects deletes the objects of a debt from one resource, and verifies that they are gone. It does not delete a
// collection, which would ignore the age of objects, and deletes each object by its UID, so that one created meanwhile
// under the same name stays.
func deleteObjects(ctx context.Context, client metadata.Interface, d Debt, r Resource) error {
	objects := client.Resource(r.GroupVersionResource).Namespace(d.Namespace)
	var failures []error
	err := EachObject(ctx, objects, func(o *metav1.PartialObjectMetadata) error {
		if d.decide(o) != deleteObject {
			return nil
		}
		err := DeleteObject(ctx, objects, o, &metav1.Preconditions{UID: &o.UID})
		if IsUnreachable(err) {
			return err
		}
		if err != nil {
			failures = append(failures, err)
		}
		return nil
	})
	if !r.Served && apierrors.IsNotFound(err) {
		return nil // neither listed nor served: it is really gone
	}
	if apierrors.IsMethodNotSupported(err) {
		return nil // it cannot be listed, and the deletion of a namespace does not wait for such a resource either
	}
	if err == nil {
		err = errors.Join(failures...)
	}
	if err == nil {
		err = verify(ctx, objects, d)
	}
	if err != nil {
		return fmt.Errorf("%s in namespace %s: %w", r.Resource, d.Namespace, err)
	}
	return nil
}

// verify lists the objects again: a backend can report a deletion that it did not do.
func verify(ctx context.Context, objects metadata.ResourceInterface, d Debt) error {
	left, unsure := 0, 0
	err := EachObject(ctx, objects, func(o *metav1.PartialObjectMetadata) error {
		switch d.decide(o) {
		case deleteObject:
			left++
		case uncertain:
			unsure++
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case left > 0:
		return fmt.Errorf("%d objects are still there after their deletion", left)
	case unsure > 0:
		return fmt.Errorf("%d objects have no uid or no creationTimestamp and cannot be told from those of a new namespace: delete them at the backend", unsure)
	}
	return nil
}
