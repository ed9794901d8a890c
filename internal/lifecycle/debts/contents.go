package debts

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
)

// The functions in this file list and delete the objects of a namespace at any API server. They bound the duration and size of
// each response and the number of pages, to limit the effect of a faulty backend.

const (
	// CallTimeout bounds each request. A backend that does not respond in time is retried later, so that it costs one timeout
	// and does not delay other backends.
	CallTimeout = 5 * time.Second
	// PageSize bounds the number of objects of a list that are in memory.
	PageSize = 500
	// maxPages bounds the number of pages of a list.
	maxPages = 10_000
)

// unreachableError wraps the error of a call without a response, or with a response that reports unavailability.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return e.err.Error() }
func (e *unreachableError) Unwrap() error { return e.err }

// IsUnreachable reports whether an error of CallBackend means that the backend could not be reached.
func IsUnreachable(err error) bool {
	var u *unreachableError
	return errors.As(err, &u)
}

// CallBackend makes one call within CallTimeout.
func CallBackend(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	err := call(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &unreachableError{fmt.Errorf("no answer within %s", CallTimeout)}
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return &unreachableError{err} // dial, TLS, reset
	}
	switch status.Status().Code {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return &unreachableError{err}
	}
	return err
}

// EachObject lists all objects page by page and calls visit for each. It stops at the first error.
func EachObject(ctx context.Context, client metadata.ResourceInterface, visit func(*metav1.PartialObjectMetadata) error) error {
	options := metav1.ListOptions{Limit: PageSize}
	for range maxPages {
		var list *metav1.PartialObjectMetadataList
		err := CallBackend(ctx, func(ctx context.Context) (err error) {
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
	return fmt.Errorf("list: the backend has not come to an end after %d pages", maxPages)
}

// DeleteObject deletes one object with background propagation. It returns nil if the object does not exist or does not match
// the preconditions.
func DeleteObject(ctx context.Context, client metadata.ResourceInterface, o *metav1.PartialObjectMetadata, preconditions *metav1.Preconditions) error {
	background := metav1.DeletePropagationBackground
	err := CallBackend(ctx, func(ctx context.Context) error {
		return client.Delete(ctx, o.Name, metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: preconditions})
	})
	if err == nil || apierrors.IsNotFound(err) || preconditions != nil && apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("delete %s: %w", o.Name, err)
}
