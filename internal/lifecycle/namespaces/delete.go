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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"portico.dev/internal/lifecycle/contents"
)

const (
	// parallelGroups groups of one namespace are swept at a time.
	parallelGroups = 8
	// groupTimeout bounds a group as a whole, where contents.CallTimeout bounds each call: a backend can also answer every
	// page and never end.
	groupTimeout = time.Minute
)

// errReplaced: the namespace is gone, or another one has its name. What is swept from then on would be somebody's live
// objects: people do empty finalizers by hand and create the namespace anew.
var errReplaced = errors.New("the namespace was replaced")

// contentDeleter deletes what is in a namespace and counts what is left.
type contentDeleter struct {
	client         kubernetes.Interface
	metadata       metadata.Interface
	knownResources *knownResources
	emptyVersions  *emptyVersions
}

// deletionResult is what one sweep left behind.
type deletionResult struct {
	aborted    error // the sweep did not go on: nothing else here is complete
	errors     []error
	remaining  map[schema.GroupResource]int
	finalizers map[string]int // objects by the finalizer that keeps them
	estimate   time.Duration  // how long what remains may take to go
	// deleted counts what was found at backends and is gone now. It is looked for once more: objects can come back.
	deleted map[schema.GroupResource]int
	// needed is what other namespaces still have to delete while their backend is here.
	needed []string
}

// clean says whether nothing was found that has to go before the rest.
func (f *deletionResult) clean() bool {
	return f.aborted == nil && len(f.errors) == 0 && len(f.remaining) == 0 && len(f.deleted) == 0 && len(f.needed) == 0
}

// deleteAll clears first what will have no backend soon, then deletes pods: they are what uses the rest (CVE-2024-7598). Only
// when nothing of these is left, everything else goes, each group beside the others. A failure in one resource never
// stops the others of its stage. others are the other namespaces that are being deleted.
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

// deleteGroups clears groups side by side.
func (w *contentDeleter) deleteGroups(ctx context.Context, ns *corev1.Namespace, lanes [][]target) *deletionResult {
	total := &deletionResult{}
	var mu sync.Mutex // guards total
	var groups errgroup.Group
	groups.SetLimit(parallelGroups)
	for _, targets := range lanes {
		groups.Go(func() error {
			f := w.deleteGroup(ctx, ns, targets)
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

// deleteGroup clears the resources of one group, and gives it up for this time when its backend cannot be reached.
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
			if contents.Unreachable(err) {
				break
			}
		}
	}
	return f
}

// checkNamespace asks storage whether the namespace is the one this sweep began with.
func (w *contentDeleter) checkNamespace(ctx context.Context, ns *corev1.Namespace) error {
	var now *corev1.Namespace
	err := contents.Bounded(ctx, func(ctx context.Context) (err error) {
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
	for gr, n := range o.remaining {
		f.remain(gr, n)
	}
	for gr, n := range o.deleted {
		if f.deleted == nil {
			f.deleted = map[schema.GroupResource]int{}
		}
		f.deleted[gr] += n
	}
	for name, n := range o.finalizers {
		if f.finalizers == nil {
			f.finalizers = map[string]int{}
		}
		f.finalizers[name] += n
	}
}

func (f *deletionResult) remain(gr schema.GroupResource, n int) {
	if f.remaining == nil {
		f.remaining = map[schema.GroupResource]int{}
	}
	f.remaining[gr] += n
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

// unreachableOnly says whether nothing went wrong but that backends did not answer: then waiting is all there is to do,
// and no reason to wait long.
func (f *deletionResult) unreachableOnly() bool {
	return len(f.errors) > 0 && !slices.ContainsFunc(f.errors, func(err error) bool { return !contents.Unreachable(err) })
}
