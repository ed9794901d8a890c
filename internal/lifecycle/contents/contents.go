// Package contents is the objects of a namespace as any API server lists and deletes them, with a bound on everything a
// backend could do to whoever asks: how long an answer takes, how much of it is held, and how it never ends.
package contents

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

const (
	// CallTimeout bounds each request. A backend that does not answer within it is left for the next time, so that one
	// that hangs costs one timeout and delays nobody else.
	CallTimeout = 5 * time.Second
	// PageSize bounds what one answer of a list holds in memory.
	PageSize = 500
	// maxPages bounds a list that goes on and on.
	maxPages = 10_000
)

// unreachableError: no API server's own answer came back, or one that says there is nobody to give it.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return e.err.Error() }
func (e *unreachableError) Unwrap() error { return e.err }

// Unreachable says whether an error of Bounded is about the way to the backend rather than what was asked of it.
func Unreachable(err error) bool {
	var u *unreachableError
	return errors.As(err, &u)
}

// Bounded makes one call within CallTimeout.
func Bounded(ctx context.Context, call func(context.Context) error) error {
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

// Each calls visit for every object, page by page, and stops at the first error.
func Each(ctx context.Context, client metadata.ResourceInterface, visit func(*metav1.PartialObjectMetadata) error) error {
	options := metav1.ListOptions{Limit: PageSize}
	for range maxPages {
		var list *metav1.PartialObjectMetadataList
		err := Bounded(ctx, func(ctx context.Context) (err error) {
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

// Delete deletes one object in the background. One that is gone is no error, nor is one that is not the object any more
// that the preconditions, if given, ask for.
func Delete(ctx context.Context, client metadata.ResourceInterface, o *metav1.PartialObjectMetadata, preconditions *metav1.Preconditions) error {
	background := metav1.DeletePropagationBackground
	err := Bounded(ctx, func(ctx context.Context) error {
		return client.Delete(ctx, o.Name, metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: preconditions})
	})
	if err == nil || apierrors.IsNotFound(err) || preconditions != nil && apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("delete %s: %w", o.Name, err)
}
