package namespaces

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"portico.dev/internal/clients"
	"portico.dev/internal/lifecycle/debts"
)

const (
	// parallelGroups is the number of groups of one namespace that are processed concurrently.
	parallelGroups = 8
	// groupTimeout bounds the processing of one group. debts.CallTimeout bounds each request, but a list could have an
	// unlimited number of pages.
	groupTimeout = time.Minute
)

// errReplaced reports that the namespace does not exist, or was replaced by another namespace of the same name. The objects of
// the new namespace must not be deleted. Users do remove finalizers manually and create the namespace again.
var errReplaced = errors.New("the namespace was replaced")

// contentDeleter deletes the contents of a namespace and counts the remaining objects.
type contentDeleter struct {
	client         clients.Interface
	metadata       metadata.Interface
	metadataAt     func(backend string) metadata.Interface
	hidden         metadata.Interface
	knownResources *knownResources
	emptyVersions  *emptyVersions
}

// deletionResult contains the objects that one pass found and left.
type deletionResult struct {
	aborted    error // the pass was aborted, and the other fields are incomplete
	errors     []error
	remaining  map[content]int
	finalizers map[string]int // number of objects per finalizer
	estimate   time.Duration  // expected time until the remaining objects are gone
	// deleted counts the objects deleted at backends. They are checked again, because objects can reappear.
	deleted map[content]int
	// needed lists the resources that other namespaces still have to delete at a backend in this namespace.
	needed []string
}

// clean reports whether nothing was found.
func (f *deletionResult) clean() bool {
	return f.aborted == nil && len(f.errors) == 0 && len(f.remaining) == 0 && len(f.deleted) == 0 && len(f.needed) == 0
}

// deleteAll deletes the urgent resources first, then pods, because pods use the rest (CVE-2024-7598), and finally everything
// else, group by group in parallel. A stage starts after the previous one has found nothing. A failure in one resource does not
// stop the other resources of its stage. others are the other namespaces that are being deleted.
func (w *contentDeleter) deleteAll(ctx context.Context, ns *corev1.Namespace, s *plan, others []*corev1.Namespace) *deletionResult {
	total := w.deleteGroups(ctx, ns, s.urgent)
	w.emptyVersions.record(ns, s.ending, total.clean())
	if !total.clean() {
		return total
	}
	total.add(w.neededByOthers(ns, s.ending, others))
	if !total.clean() {
		return total
	}
	if s.pods != nil {
		total.add(w.deleteGroup(ctx, ns, []target{*s.pods}))
		if !total.clean() {
			return total
		}
	}
	total.add(w.deleteGroups(ctx, ns, s.groups))
	return total
}

// deleteGroups processes groups in parallel.
func (w *contentDeleter) deleteGroups(ctx context.Context, ns *corev1.Namespace, groups [][]target) *deletionResult {
	total := &deletionResult{}
	var mu sync.Mutex // guards total
	var workers errgroup.Group
	workers.SetLimit(parallelGroups)
	for _, targets := range groups {
		workers.Go(func() error {
			f := w.deleteGroup(ctx, ns, targets)
			mu.Lock()
			defer mu.Unlock()
			total.add(f)
			return nil
		})
	}
	_ = workers.Wait() // the errors are in total
	slices.SortFunc(total.errors, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return total
}

// deleteGroup processes the resources of one group. It stops if the backend cannot be reached.
func (w *contentDeleter) deleteGroup(ctx context.Context, ns *corev1.Namespace, targets []target) *deletionResult {
	ctx, cancel := context.WithTimeout(ctx, groupTimeout)
	defer cancel()
	f := &deletionResult{}
	if err := w.checkNamespace(ctx, ns); err != nil {
		f.aborted = err
		return f
	}
	for _, t := range targets {
		left, err := w.deleteResource(ctx, ns.Name, t)
		f.add(left)
		if err != nil {
			f.errors = append(f.errors, err)
			if debts.IsUnreachable(err) {
				break
			}
		}
	}
	return f
}

// checkNamespace verifies that the namespace has not been replaced.
func (w *contentDeleter) checkNamespace(ctx context.Context, ns *corev1.Namespace) error {
	var now *corev1.Namespace
	err := debts.CallBackend(ctx, func(ctx context.Context) (err error) {
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

func (f *deletionResult) add(o *deletionResult) {
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
	f.needed = append(f.needed, o.needed...)
	for c, n := range o.remaining {
		f.remain(c, n)
	}
	for c, n := range o.deleted {
		if f.deleted == nil {
			f.deleted = map[content]int{}
		}
		f.deleted[c] += n
	}
	for name, n := range o.finalizers {
		if f.finalizers == nil {
			f.finalizers = map[string]int{}
		}
		f.finalizers[name] += n
	}
}

func (f *deletionResult) remain(c content, n int) {
	if f.remaining == nil {
		f.remaining = map[content]int{}
	}
	f.remaining[c] += n
}

func (f *deletionResult) total() int {
	n := 0
	for _, k := range f.remaining {
		n += k
	}
	return n
}

func (f *deletionResult) err() error {
	texts := make([]string, 0, len(f.errors))
	for _, err := range f.errors {
		texts = append(texts, err.Error())
	}
	return errors.New(strings.Join(texts, ", "))
}

// unreachableOnly reports whether all errors are from unreachable backends. These are retried soon.
func (f *deletionResult) unreachableOnly() bool {
	return len(f.errors) > 0 && !slices.ContainsFunc(f.errors, func(err error) bool { return !debts.IsUnreachable(err) })
}
