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

	"portico.dev/internal/lifecycle/contents"
)

const (
	// inProcessHost stands where a URL needs a host and nobody looks at it.
	inProcessHost = "https://portico.invalid"
	// maxDocument bounds what a backend can say that it serves.
	maxDocument = 4 << 20
	// ahead is how far the Date of an answer may be ahead of our time without meaning anything.
	ahead = 2 * time.Second
)

// fetchResources asks a backend itself which of its resources can hold objects of a namespace and delete them. The merged
// discovery may be a minute old, and says nothing of a backend that was never seen before its debt was made.
// behind is how far the clock of the backend is behind ours.
func fetchResources(ctx context.Context, way http.RoundTripper, gv schema.GroupVersion) (names []string, behind time.Duration, err error) {
	var list metav1.APIResourceList
	err = contents.Bounded(ctx, func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, inProcessHost+"/apis/"+gv.String(), nil)
		if err != nil {
			return err
		}
		r.Header.Set("Accept", "application/json")
		resp, err := way.RoundTrip(r)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }() // it was read, or its error was met
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("the backend answered %d", resp.StatusCode)
		}
		behind = clockOf(resp, time.Now())
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
	return names, behind, nil
}

// clockOf is how far the clock behind an answer is behind now; zero when it does not say. The Date is cut off at the second
// and took a while to arrive, so that it looks a little further behind than it is: that errs on the side of sparing an
// object, and costs nothing, since the backend was away for longer than that when the debt was made.
func clockOf(resp *http.Response, now time.Time) time.Duration {
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return 0
	}
	behind := now.Sub(date)
	if behind < 0 && behind > -ahead {
		return 0
	}
	return behind
}

// NamespaceUIDAnnotation says which namespace an object belongs to, for backends that know: it decides alone, whatever
// the age of the object.
const NamespaceUIDAnnotation = "portico.dev/namespace-uid"

// judgement is what a debt has to say about an object.
type judgement int

const (
	// spared objects belong to somebody, or are on their way out already.
	spared judgement = iota
	// owed objects belonged to the namespace that went.
	owed
	// doubtful objects cannot be told apart from those of a new namespace of the same name, or not be deleted without
	// the risk of hitting another object of that name.
	doubtful
)

// judge decides about one object of the namespace's name. The namespace existed for Settle after the debt was recorded,
// so that what is older belonged to it, and what belongs to its successor is younger by the clock of the backend.
//
// An object that is being deleted is spared: its finalizers are for others to take away, who need the group-version to
// be available for that.
func (d Debt) judge(o *metav1.PartialObjectMetadata) judgement {
	uid, said := o.Annotations[NamespaceUIDAnnotation]
	switch {
	case o.Namespace != "" && o.Namespace != d.Namespace:
		return spared // a backend that does not heed the namespace it was asked for
	case said && uid != string(d.NamespaceUID), o.DeletionTimestamp != nil:
		return spared
	case !said && o.CreationTimestamp.IsZero():
		return doubtful
	case !said && o.CreationTimestamp.After(d.Since):
		return spared
	case o.UID == "":
		return doubtful
	}
	return owed
}

// Resource is what may hold objects of a namespace. Served is false for one that the backend does not list any more.
type Resource struct {
	schema.GroupVersionResource
	Served bool
}

// clear deletes what a debt is about from one resource, and makes sure that it is gone. Nothing is deleted as a
// collection, which knows no age; and each object by its UID, so that one that was made anew under the same name while
// we looked is not hit.
func clear(ctx context.Context, client metadata.Interface, d Debt, r Resource) error {
	objects := client.Resource(r.GroupVersionResource).Namespace(d.Namespace)
	var failures []error
	err := contents.Each(ctx, objects, func(o *metav1.PartialObjectMetadata) error {
		if d.judge(o) != owed {
			return nil
		}
		err := contents.Delete(ctx, objects, o, &metav1.Preconditions{UID: &o.UID})
		if contents.Unreachable(err) {
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

// verify looks again. A backend can say that it deletes, and not do it.
func verify(ctx context.Context, objects metadata.ResourceInterface, d Debt) error {
	left, unclear := 0, 0
	err := contents.Each(ctx, objects, func(o *metav1.PartialObjectMetadata) error {
		switch d.judge(o) {
		case owed:
			left++
		case doubtful:
			unclear++
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case left > 0:
		return fmt.Errorf("%d objects are still there after their deletion", left)
	case unclear > 0:
		return fmt.Errorf("%d objects have no uid or no creationTimestamp and cannot be told from those of a new namespace: delete them at the backend", unclear)
	}
	return nil
}
