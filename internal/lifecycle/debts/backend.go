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
	// inProcessHost is a placeholder host for URLs.
	inProcessHost = "https://portico.invalid"
	// maxDocument bounds a backend's discovery document.
	maxDocument = 4 << 20
	// dateTolerance is how far the Date of a response may be ahead of the local clock without counting as clock skew.
	dateTolerance = 2 * time.Second
)

// fetchResources fetches the namespaced, deletable resources directly from the backend. The merged discovery document may be a
// minute old, and lacks a backend that was never reachable before its debt was recorded. lag is how far the backend's clock is
// behind the local clock.
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
		defer func() { _ = resp.Body.Close() }() // the body was read, or reading it failed
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

// clockLag returns how far the clock that set the Date of a response is behind now, or zero without a Date. The Date is
// truncated to the second and took time to arrive, so the computed lag is slightly too large. An object close to the limit is
// therefore kept. This is harmless, because the backend was down for longer than this error when the debt was recorded.
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

// NamespaceUIDAnnotation contains the UID of the namespace that an object belongs to, on backends that set it. It takes
// precedence over the age of the object.
//
//reference:annotations Annotations of objects at extension servers
const NamespaceUIDAnnotation = "portico.dev/namespace-uid"

// decision is the treatment of an object.
type decision int

const (
	// keepObject applies to an object that belongs to another namespace or is already being deleted.
	keepObject decision = iota
	// deleteObject applies to an object of the finalized namespace.
	deleteObject
	// uncertain applies to an object that may belong to a new namespace of the same name, or that has no UID, so that deleting
	// by name could hit another object.
	uncertain
)

// decide decides about one object in a namespace with the debt's name. The namespace existed for FinalizeDelay after the debt
// was recorded. Objects that are older than the debt, by the backend's clock, belonged to it. Younger objects belong to a new
// namespace.
//
// An object that is being deleted is kept. Other controllers remove its finalizers, and need an available group-version to do
// so.
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

// Resource may hold objects of a namespace. Served is false if the backend no longer lists the resource.
type Resource struct {
	schema.GroupVersionResource
	Served bool
}

// deleteObjects deletes the objects of a debt from one resource, and verifies that they are gone. It does not delete a
// collection, which would ignore the age of the objects. It deletes each object by its UID, so that an object created in the
// meantime under the same name survives.
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
		return nil // neither listed nor served: the resource does not exist
	}
	if apierrors.IsMethodNotSupported(err) {
		return nil // the resource cannot be listed, and the deletion of a namespace does not wait for such resources either
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

// verify lists the objects again, because a backend can report a deletion that it did not perform.
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
