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
	// firstDelay is the time between the deletion and the first reconcile. kube-controller-manager waits 5 s. Three reasons
	// require a delay. Extension servers learn of the deletion through a watch and refuse creates only afterwards, whereas
	// local creates are refused at once. A kubectl command that deletes a manifest with a namespace and its objects reports a
	// missing object as a failure, so the objects must still exist. And all namespaces deleted by one command are marked by
	// then, so that a namespace with backends of other namespaces is finalized last.
	firstDelay = time.Second
	// blockedRetry is the reconcile interval of a namespace that waits only for a backend. Changes of the served group-versions
	// trigger additional reconciles.
	blockedRetry = 2 * time.Second
	// firstRecheck and lastRecheck bound the pause before a backend is checked again for the objects deleted there.
	firstRecheck, lastRecheck = time.Second, time.Minute
	// conflictTries is the number of attempts to write a status despite conflicts.
	conflictTries = 5
)

// Finalizer deletes the contents of namespaces that are being deleted and then removes their finalizer.
//
// It differs from kube-controller-manager's namespace controller in five ways. An unavailable backend that is known to hold no
// deletable objects does not block. A backend that hangs does not delay other cleanups. A deletion reported by a backend is
// verified. A backend in the namespace itself is cleaned first. The status also names the remaining objects while pods remain
// (kubernetes/kubernetes#138208).
type Finalizer struct {
	Config
	deleter        *contentDeleter
	knownResources knownResources
	emptyVersions  emptyVersions
	waiting        waiting
}

// Config configures a Finalizer. Every field without a default is required.
type Config struct {
	// Delay is the time between the deletion of a namespace and the first reconcile. Default firstDelay.
	Delay time.Duration
	// Client writes namespaces. Deleting one namespace may take a hundred requests.
	Client clients.Interface
	// Metadata deletes and counts objects of any kind.
	Metadata metadata.Interface
	// MetadataAt is like Metadata, for one of several backends of a group-version. Default nil: every group-version has at most
	// one backend.
	MetadataAt func(backend string) metadata.Interface
	// Hidden is like Metadata, for objects that this server stores in group-versions of extension servers. Default nil: there
	// are no such objects, and Served must not return group-versions with HiddenBy.
	Hidden metadata.Interface
	// Namespaces is shared with the rest of the server, which runs it.
	Namespaces coreinformers.NamespaceInformer
	// Served returns the served group-versions, available or not, in order of preference within a group.
	Served func() []GroupVersion
	// Defined returns the custom resources that are defined in etcd at this moment. Served may lag behind. Default nil: no
	// custom resources exist.
	Defined func(context.Context) ([]schema.GroupVersionResource, error)
	// Changed contains functions that each return a channel that is closed when the result of Served may have changed. Callers
	// must obtain it before they call Served.
	Changed []func() <-chan struct{}
	// Probe reports that a namespace waits for an APIService's backend, so that the backend's return is detected soon. It must
	// not block.
	Probe func(apiService string)
	// Debts records the objects that namespaces leave at unavailable backends.
	Debts *debts.Store
	// CycleGrace is how long a namespace waits for a backend that had its Service in this namespace. Default DefaultCycleGrace.
	CycleGrace time.Duration
	// Election reports whether this replica leads. Default nil: this is the only replica.
	Election reconcile.Election
	Logger   *zap.Logger
}

// New returns a Finalizer that is idle until Run.
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

// discover returns the served group-versions. It returns an error if they lack a custom resource that could have been created
// in the namespace before it was marked. New CRDs appear in discovery with a delay, and objects of unknown kinds would remain.
func (f *Finalizer) discover(ctx context.Context) ([]GroupVersion, error) {
	if f.Defined == nil {
		return f.Served(), nil
	}
	defined, err := f.Defined(ctx)
	if err != nil {
		return nil, err
	}
	served := f.Served() // read after the definitions, because it may include them by then
	for _, gvr := range defined {
		if !contains(served, gvr) {
			return nil, fmt.Errorf("%s is defined and not in discovery yet", gvr.GroupResource())
		}
	}
	return served, nil
}

// contains reports whether custom resources are served locally, in any version, or are known to be hidden. A resource of the
// same name at an extension server has other objects.
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
		return 0, nil // only finalizers of other controllers remain, or the namespace is being removed
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

// deleteContents deletes the contents once, writes the conditions, and finalizes the namespace if nothing was found.
func (f *Finalizer) deleteContents(ctx context.Context, ns *corev1.Namespace, p *plan, others []*corev1.Namespace) (time.Duration, error) {
	f.emptyVersions.forgetVersions(ns, p.stable)
	blocking := f.blockedVersions(ns, f.emptyVersions.removeEmpty(ns, p.blocked))
	for _, w := range blocking {
		f.Probe(w.APIService)
	}
	// The contents are deleted again immediately before the namespace is finalized.
	expired, next := allExpired(blocking, time.Now())
	if !expired && alreadyEmptied(ns, blocking) && f.emptyVersions.covers(ns, p.ending) {
		// The wait for a backend may take days, and repeated deletions would find nothing. Backends in namespaces that are
		// being deleted are an exception, because they wait for this namespace.
		_, err := f.updateStatus(ctx, ns, func(s *corev1.NamespaceStatus) {
			s.Conditions = conditions(s.Conditions, blocking, &deletionResult{}, metav1.Now())
		})
		return next, err
	}
	// The resources of a backend that has returned come first. Everything else was deleted while the namespace waited, and is
	// deleted again before the namespace is finalized. Deleting it now as well would take seconds if etcd is slow.
	result := f.deleter.deleteGroups(ctx, ns, returned(ns, p.groups))
	if result.clean() {
		result = f.deleter.deleteAll(ctx, ns, p, others)
	}
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

// recheck returns the pause before the backends are checked again. It grows with the time for which objects have been
// reappearing.
func recheck(ns *corev1.Namespace, now time.Time) time.Duration {
	for _, c := range ns.Status.Conditions {
		if c.Type == corev1.NamespaceContentRemaining {
			return min(max(now.Sub(c.LastTransitionTime.Time)/4, firstRecheck), lastRecheck)
		}
	}
	return firstRecheck
}

// finalize removes the finalizer "kubernetes". The resource version makes it fail if the namespace has changed since it was
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

// updateStatus changes the status of this namespace and retries after conflicts. It returns nil if the namespace does not exist
// or was replaced by another namespace of the same name.
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

// waiting contains the namespaces that were reconciled and are not done. Namespaces before their first reconcile are not
// included, and keep their delay.
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
