package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
)

const (
	// finalizerEstimate is how long an object's own finalizers are expected to take.
	finalizerEstimate = 15 * time.Second
	// pageSize bounds what one answer of a list holds in memory.
	pageSize = 500
)

// leftoversError: everything was deleted without an error, and yet something without finalizers is there.
type leftoversError struct{ namespace, gvr string }

func (e *leftoversError) Error() string {
	return fmt.Sprintf("unexpected items still remain in namespace: %s for gvr: %s", e.namespace, e.gvr)
}

// clear deletes the objects of one resource and counts what is left. Errors say which resource.
func (w *sweeper) clear(ctx context.Context, namespace string, t target) (*found, error) {
	left, err := w.deleteAndCount(ctx, namespace, t)
	var leftovers *leftoversError
	if err != nil && !errors.As(err, &leftovers) {
		err = fmt.Errorf("%s: %w", t.GroupVersionResource.String(), err)
	}
	return left, err
}

func (w *sweeper) deleteAndCount(ctx context.Context, namespace string, t target) (*found, error) {
	client := w.metadata.Resource(t.GroupVersionResource).Namespace(namespace)
	background := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{PropagationPolicy: &background}

	collected := false
	if t.DeleteCollection {
		err := bounded(ctx, func(ctx context.Context) error {
			return client.DeleteCollection(ctx, options, metav1.ListOptions{})
		})
		switch {
		case err == nil:
			collected = true
		case !apierrors.IsMethodNotSupported(err) && !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("delete collection: %w", err)
		}
	}
	if !t.List {
		return nil, nil // no way to see what is there; upstream passes such resources by as well
	}
	if !collected {
		if err := deleteEach(ctx, client, options); err != nil {
			return nil, err
		}
	}
	return w.inspect(ctx, client, namespace, t)
}

func deleteEach(ctx context.Context, client metadata.ResourceInterface, options metav1.DeleteOptions) error {
	var failures []error
	err := eachItem(ctx, client, func(o *metav1.PartialObjectMetadata) error {
		err := bounded(ctx, func(ctx context.Context) error { return client.Delete(ctx, o.Name, options) })
		switch {
		case err == nil, apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
			return nil
		case unreachable(err):
			return fmt.Errorf("delete %s: %w", o.Name, err)
		}
		failures = append(failures, fmt.Errorf("delete %s: %w", o.Name, err))
		return nil
	})
	if err != nil {
		return err
	}
	return errors.Join(failures...)
}

// inspect counts what is left. A resource that discovery lists and that answers 404 is an error, not an empty list: a
// backend that lost its data, or lies, must not have its objects orphaned (contract.md F.4). When the resource is really
// gone, discovery says so a moment later and it is not asked any more.
func (w *sweeper) inspect(ctx context.Context, client metadata.ResourceInterface, namespace string, t target) (*found, error) {
	f := &found{finalizers: map[string]int{}}
	held := 0
	err := eachItem(ctx, client, func(o *metav1.PartialObjectMetadata) error {
		f.remain(t.GroupResource(), 1)
		if len(o.Finalizers) > 0 {
			held++
			f.estimate = finalizerEstimate
		}
		for _, name := range o.Finalizers {
			f.finalizers[name]++
		}
		return nil
	})
	if err != nil || f.total() == 0 {
		return f, err
	}
	if t.Group == "" && t.Name == "pods" {
		grace, err := w.podGrace(ctx, namespace)
		if err != nil {
			return f, err
		}
		f.estimate = max(f.estimate, grace)
	}
	if held == 0 && f.estimate == 0 {
		return f, &leftoversError{namespace: namespace, gvr: t.GroupVersionResource.String()}
	}
	return f, nil
}

// eachItem calls visit for every object, page by page, and stops at the first error.
func eachItem(ctx context.Context, client metadata.ResourceInterface, visit func(*metav1.PartialObjectMetadata) error) error {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		var list *metav1.PartialObjectMetadataList
		err := bounded(ctx, func(ctx context.Context) (err error) {
			list, err = client.List(ctx, options)
			return err
		})
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		for i := range list.Items {
			if err := visit(&list.Items[i]); err != nil {
				return err
			}
		}
		if list.Continue == "" {
			return nil
		}
		if list.Continue == options.Continue {
			return errors.New("list: the backend returns the same page again and again")
		}
		options.Continue = list.Continue
	}
}
