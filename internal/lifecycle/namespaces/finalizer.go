package namespaces

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/metadata"

	"portico.dev/internal/clients"
	"portico.dev/internal/lifecycle/debts"
	"portico.dev/internal/lifecycle/reconcile"
)

const (
	// firstDelay passes between the deletion and the first reconcile. Local objects cannot be created in the namespace by
	// then in any case; extension servers learn of the deletion by a watch and refuse creates only then. And kubectl, deleting
	// a manifest with a namespace and its objects, finds these still there: it reports NotFound as a failure. Namespaces
	// deleted by one command are all marked by then, so that those with backends of others are finalized last. Upstream
	// waits 5 s.
	firstDelay = time.Second
	// blockedRetry is how soon a namespace that waits only for a backend is reconciled again, beside whenever what is served
	// changes.
	blockedRetry = 2 * time.Second
	// firstRecheck and lastRecheck bound the pause before a backend is checked again for the objects deleted there.
	firstRecheck, lastRecheck = time.Second, time.Minute
	// conflictTries is how often a status is written again after conflicts.
	conflictTries = 5
)

// Finalizer deletes the contents of namespaces that are being deleted and then removes their finalizer.
//
// It differs from upstream's: a dead backend that is known to hold nothing deletable does not block; one that hangs delays
// no other cleanup; a deletion that a backend reports is verified; a backend in the namespace itself is cleaned first; and
// the status names what remains also while pods remain (kubernetes/kubernetes#138208).
type Finalizer struct {
	Config
	deleter        *contentDeleter
	knownResources knownResources
	emptyVersions  emptyVersions
	waiting        waiting
}

// Config is what a Finalizer needs. Every field without a default is required.
type Config struct {
	// Delay passes between the deletion of a namespace and the first reconcile. Default firstDelay.
	Delay time.Duration
	// Client writes namespaces. Deleting one namespace may take a hundred requests.
	Client clients.Interface
	// Metadata deletes and counts objects of kinds that this program does not know.
	Metadata metadata.Interface
	// MetadataAt is the same for what one of several backends of a group-version has. Default nil: no group-version has several.
	MetadataAt func(backend string) metadata.Interface
	// Hidden is the same for what this server stores of group-versions that extension servers serve. Default nil: there is
	// nothing. Served must not return group-versions with HiddenBy then.
	Hidden metadata.Interface
	// Namespaces is shared with the rest of the server, which runs it.
	Namespaces coreinformers.NamespaceInformer
	// Served returns the group-versions that are served, alive or dead, in order of preference within a group.
	Served func() []GroupVersion
	// Defined returns the custom resources that are defined in etcd at this moment. Served may be behind them. Default nil:
	// there are none.
	Defined func(context.Context) ([]schema.GroupVersionResource, error)
	// Changed each return a channel that is closed when Served may return something else. Take it before calling Served.
	Changed []func() <-chan struct{}
	// Probe tells that a namespace waits for an APIService's backend, so that its return is noticed soon. It must not
	// block.
	Probe func(apiService string)
	// Debts records what namespaces leave behind.
	Debts *debts.Store
	// CycleGrace is how long a namespace waits for a backend whose Service was in it. Default DefaultCycleGrace.
	CycleGrace time.Duration
	// Election says whether this replica leads. Default nil: there is no other.
	Election reconcile.Election
	Logger   *zap.Logger
}

// New makes a Finalizer that does nothing until Run.
func New(cfg Config) *Finalizer {
	cfg.CycleGrace = cmp.Or(cfg.CycleGrace, DefaultCycleGrace)
	f := &Finalizer{Config: cfg}
	f.deleter = &contentDeleter{client: cfg.Client, metadata: cfg.Metadata, metadataAt: cfg.MetadataAt, hidden: cfg.Hidden, knownResources: &f.knownResources, emptyVersions: &f.emptyVersions}
	return f
}

// Run finalizes namespaces until ctx ends.
func (f *Finalizer) Run(ctx context.Context) error {
	l := &reconcile.Loop{
		Name: "namespace-finalizer", Workers: 10, Election: f.Election, Log: f.Logger,
		Delay: cmp.Or(f.Delay, firstDelay), Resync: 5 * time.Minute, Reconcile: f.reconcile,
		Changed: append(slices.Clone(f.Changed), f.Debts.Changed), Waiting: f.waiting.all,
	}
	return l.Run(ctx, reconcile.Source{Informer: f.Namespaces.Informer(), Key: func(obj any) string {
		if ns, ok := obj.(*corev1.Namespace); ok && ns.DeletionTimestamp != nil {
			return ns.Name
		}
		return ""
	}})
}

// discover returns what is served, and an error unless that includes every custom resource that could have been created in
// the namespace before it was marked. Discovery has new CRDs a moment late, and objects of unknown kinds would stay.
func (f *Finalizer) discover(ctx context.Context) ([]GroupVersion, error) {
	if f.Defined == nil {
		return f.Served(), nil
	}
	defined, err := f.Defined(ctx)
	if err != nil {
		return nil, err
	}
	served := f.Served() // after the definitions: it may have them by now
	for _, gvr := range defined {
		if !contains(served, gvr) {
			return nil, fmt.Errorf("%s is defined and not in discovery yet", gvr.GroupResource())
		}
	}
	return served, nil
}

// contains reports whether custom resources are served here, in any version, or known to be hidden. A resource of the same
// name at an extension server has other objects.
func contains(served []GroupVersion, gvr schema.GroupVersionResource) bool {
	return slices.ContainsFunc(served, func(gv GroupVersion) bool {
		return gv.Group == gvr.Group && gv.remoteAPIService() == "" &&
			slices.ContainsFunc(gv.Resources, func(r Resource) bool { return r.Name == gvr.Resource })
	})
}

func (f *Finalizer) reconcile(ctx context.Context, name string) (time.Duration, error) {
	f.waiting.set(name, true) // changes during the reconcile count too
	again, err := f.reconcileOnce(ctx, name)
	f.waiting.set(name, again > 0 || err != nil)
	return again, err
}

func (f *Finalizer) reconcileOnce(ctx context.Context, name string) (time.Duration, error) {
	ns, err := f.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		f.emptyVersions.forget(name)
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("get namespace: %w", err)
	}
	if ns.DeletionTimestamp == nil {
		return 0, nil
	}
	if ns.Status.Phase != corev1.NamespaceTerminating {
		ns, err = f.updateStatus(ctx, ns, func(s *corev1.NamespaceStatus) { s.Phase = corev1.NamespaceTerminating })
		if err != nil || ns == nil {
			return 0, err
		}
	}
	if len(ns.Spec.Finalizers) == 0 {
		return 0, nil // only finalizers of others are left, or it is being removed
	}
	others := slices.DeleteFunc(terminatingNamespaces(f.Namespaces), func(o *corev1.Namespace) bool { return o.Name == name })
	served, err := f.discover(ctx)
	if err != nil {
		return 0, err
	}
	p, err := newPlan(f.knownResources.addDropped(served), func(host string) bool {
		return host == name || slices.ContainsFunc(others, func(o *corev1.Namespace) bool { return o.Name == host })
	})
	if err != nil {
		return 0, err
	}
	return f.deleteContents(ctx, ns, p, others)
}

// deleteContents deletes the contents once, writes the conditions, and finalizes the namespace if nothing was result.
func (f *Finalizer) deleteContents(ctx context.Context, ns *corev1.Namespace, p *plan, others []*corev1.Namespace) (time.Duration, error) {
	f.emptyVersions.forgetVersions(ns, p.stable)
	blocking := f.blockedVersions(ns, f.emptyVersions.without(ns, p.blocked))
	for _, w := range blocking {
		f.Probe(w.APIService)
	}
	// The contents are deleted once more right before the namespace is finalized.
	expired, next := allExpired(blocking, time.Now())
	if !expired && alreadyEmptied(ns, blocking) && f.emptyVersions.covers(ns, p.ending) {
		// Waiting for a backend may take days; deleting every few seconds meanwhile would find nothing. The exception are
		// backends in namespaces that are being deleted, which wait for this namespace.
		return next, nil
	}
	result := f.deleter.deleteAll(ctx, ns, p, others)
	if errors.Is(result.aborted, errReplaced) {
		return 0, nil
	}
	ns, err := f.updateStatus(ctx, ns, func(s *corev1.NamespaceStatus) {
		s.Conditions = conditions(s.Conditions, blocking, result, metav1.Now())
	})
	if err != nil || ns == nil {
		return 0, err
	}
	switch {
	case result.unreachableOnly():
		return blockedRetry, nil
	case len(result.errors) > 0:
		return 0, result.err()
	case result.total() > 0:
		return result.estimate/2 + time.Second, nil
	case len(result.needed) > 0:
		return firstRecheck, nil
	case len(result.deleted) > 0:
		return recheck(ns, time.Now()), nil
	case !expired:
		return next, nil
	case len(blocking) > 0:
		return f.finalizeWithout(ctx, ns, blocking)
	}
	return 0, f.finalize(ctx, ns)
}

// recheck returns the pause before the backends are checked again: short at first, and longer the longer objects have
// been reappearing.
func recheck(ns *corev1.Namespace, now time.Time) time.Duration {
	for _, c := range ns.Status.Conditions {
		if c.Type == corev1.NamespaceContentRemaining {
			return min(max(now.Sub(c.LastTransitionTime.Time)/4, firstRecheck), lastRecheck)
		}
	}
	return firstRecheck
}

// finalize removes the finalizer "kubernetes". The resourceVersion makes it fail when the namespace changed since it was
// found empty.
func (f *Finalizer) finalize(ctx context.Context, ns *corev1.Namespace) error {
	done := ns.DeepCopy()
	done.Spec.Finalizers = slices.DeleteFunc(done.Spec.Finalizers, func(n corev1.FinalizerName) bool {
		return n == corev1.FinalizerKubernetes
	})
	if len(done.Spec.Finalizers) == len(ns.Spec.Finalizers) {
		return nil
	}
	_, err := f.Client.CoreV1().Namespaces().Finalize(ctx, done, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalize namespace: %w", err)
	}
	f.Logger.Info("namespace finalized", zap.String("namespace", ns.Name), zap.String("uid", string(ns.UID)))
	return nil
}

// updateStatus changes the status of this namespace, retrying on conflicts. It returns nil when the namespace is gone, or
// was replaced by another one of its name.
func (f *Finalizer) updateStatus(ctx context.Context, ns *corev1.Namespace, change func(*corev1.NamespaceStatus)) (*corev1.Namespace, error) {
	for attempt := 1; ; attempt++ {
		wanted := ns.DeepCopy()
		change(&wanted.Status)
		if sameStatus(ns.Status, wanted.Status) {
			return ns, nil
		}
		updated, err := f.Client.CoreV1().Namespaces().UpdateStatus(ctx, wanted, metav1.UpdateOptions{})
		switch {
		case err == nil:
			return updated, nil
		case apierrors.IsNotFound(err):
			return nil, nil
		case !apierrors.IsConflict(err) || attempt == conflictTries:
			return nil, fmt.Errorf("update namespace status: %w", err)
		}
		latest, err := f.Client.CoreV1().Namespaces().Get(ctx, ns.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || (err == nil && latest.UID != ns.UID) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("get namespace: %w", err)
		}
		ns = latest
	}
}

// waiting is the namespaces that were reconciled and are not done. Those that were not yet are left to their delay.
type waiting struct {
	mu    sync.Mutex // guards names
	names map[string]bool
}

func (w *waiting) set(name string, waits bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.names == nil {
		w.names = map[string]bool{}
	}
	if w.names[name] = waits; !waits {
		delete(w.names, name)
	}
}

func (w *waiting) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.names))
}
