package debts

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"portico.dev/internal/lifecycle/contents"
)

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
