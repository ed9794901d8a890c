package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
)

const (
	// sweepGroups groups of one namespace are swept at a time.
	sweepGroups = 8
	// callTimeout bounds each request of a sweep. A group whose backend does not answer within it is left for the next
	// sweep, so that one that hangs costs one timeout and delays no other group.
	callTimeout = 5 * time.Second
	// groupTimeout bounds a group as a whole: a backend can also answer every page and never end.
	groupTimeout = time.Minute
)

// errReplaced: the namespace is gone, or another one has its name. What is swept from then on would be somebody's live
// objects: people do empty finalizers by hand and create the namespace anew.
var errReplaced = errors.New("the namespace was replaced")

// sweeper deletes what is in a namespace and counts what is left.
type sweeper struct {
	client   kubernetes.Interface
	metadata metadata.Interface
}

// found is what one sweep left behind.
type found struct {
	aborted    error // the sweep did not go on: nothing else here is complete
	errors     []error
	remaining  map[schema.GroupResource]int
	finalizers map[string]int // objects by the finalizer that keeps them
	estimate   time.Duration  // how long what remains may take to go
}

// sweep deletes pods first: they are what uses the rest (CVE-2024-7598). Only when none is left, everything else goes,
// each group beside the others. A failure in one resource never stops the others.
func (w *sweeper) sweep(ctx context.Context, ns *corev1.Namespace, s *survey) *found {
	total := &found{}
	if s.pods != nil {
		total.add(w.group(ctx, ns, []target{*s.pods}))
		if total.aborted != nil || len(total.errors) > 0 || total.total() > 0 {
			return total
		}
	}
	var mu sync.Mutex // guards total
	var groups errgroup.Group
	groups.SetLimit(sweepGroups)
	for _, targets := range s.groups {
		groups.Go(func() error {
			f := w.group(ctx, ns, targets)
			mu.Lock()
			defer mu.Unlock()
			total.add(f)
			return nil
		})
	}
	_ = groups.Wait() // what went wrong is in total
	slices.SortFunc(total.errors, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return total
}

// group clears the resources of one group, and gives it up for this time when its backend cannot be reached.
func (w *sweeper) group(ctx context.Context, ns *corev1.Namespace, targets []target) *found {
	ctx, cancel := context.WithTimeout(ctx, groupTimeout)
	defer cancel()
	f := &found{}
	if err := w.still(ctx, ns); err != nil {
		f.aborted = err
		return f
	}
	for _, t := range targets {
		left, err := w.clear(ctx, ns.Name, t)
		f.add(left)
		if err != nil {
			f.errors = append(f.errors, err)
			if unreachable(err) {
				break
			}
		}
	}
	return f
}

// still asks storage whether the namespace is the one this sweep began with.
func (w *sweeper) still(ctx context.Context, ns *corev1.Namespace) error {
	var now *corev1.Namespace
	err := bounded(ctx, func(ctx context.Context) (err error) {
		now, err = w.client.CoreV1().Namespaces().Get(ctx, ns.Name, metav1.GetOptions{})
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return errReplaced
	case err != nil:
		return fmt.Errorf("get namespace: %w", err)
	case now.UID != ns.UID:
		return errReplaced
	}
	return nil
}

func (f *found) add(o *found) {
	if o == nil {
		return
	}
	if o.aborted != nil {
		f.aborted = o.aborted
		if !errors.Is(o.aborted, errReplaced) {
			f.errors = append(f.errors, o.aborted)
		}
	}
	f.errors = append(f.errors, o.errors...)
	f.estimate = max(f.estimate, o.estimate)
	for gr, n := range o.remaining {
		f.remain(gr, n)
	}
	for name, n := range o.finalizers {
		if f.finalizers == nil {
			f.finalizers = map[string]int{}
		}
		f.finalizers[name] += n
	}
}

func (f *found) remain(gr schema.GroupResource, n int) {
	if f.remaining == nil {
		f.remaining = map[schema.GroupResource]int{}
	}
	f.remaining[gr] += n
}

func (f *found) total() int {
	n := 0
	for _, k := range f.remaining {
		n += k
	}
	return n
}

func (f *found) err() error {
	texts := make([]string, 0, len(f.errors))
	for _, err := range f.errors {
		texts = append(texts, err.Error())
	}
	return errors.New(strings.Join(texts, ", "))
}

// unreachableOnly says whether nothing went wrong but that backends did not answer: then waiting is all there is to do,
// and no reason to wait long.
func (f *found) unreachableOnly() bool {
	return len(f.errors) > 0 && !slices.ContainsFunc(f.errors, func(err error) bool { return !unreachable(err) })
}

// unreachableError: no API server's own answer came back, or one that says there is nobody to give it.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return e.err.Error() }
func (e *unreachableError) Unwrap() error { return e.err }

func unreachable(err error) bool {
	var u *unreachableError
	return errors.As(err, &u)
}

// bounded makes one call within callTimeout.
func bounded(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := call(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &unreachableError{fmt.Errorf("no answer within %s", callTimeout)}
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
