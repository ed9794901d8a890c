package apiservice

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorlisters "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"

	"portico.dev/internal/logging"
	"portico.dev/internal/run"
)

const registrationWorkers = 5

// withoutEtcdRetry is the interval between checks for the return of etcd.
const withoutEtcdRetry = time.Second

// registrar creates, updates and deletes the local APIServices, by the table in decide.
type registrar struct {
	client Client
	lister aggregatorlisters.APIServiceLister
	local  *localAPIServices
	log    *zap.Logger
	queue  workqueue.TypedRateLimitingInterface[string]

	// withoutEtcd reports whether nothing can be written now. The caches are then stale, and a write would happen after the
	// outage: the APIService of a CRD that is not in the cache yet would be deleted as a leftover.
	withoutEtcd func() bool

	// atStart contains the APIServices that this process found. It is written once, before the workers start.
	atStart sets.Set[string]

	mu sync.Mutex
	// wasRemote contains the names of APIServices that have just become local: see becameLocal.
	wasRemote sets.Set[string]
	// done contains the names that have been synced once.
	done sets.Set[string]
	// missing contains the built-in names that have not been synced. registered is closed when it is empty.
	missing    sets.Set[string]
	registered chan struct{}
}

func newRegistrar(client Client, lister aggregatorlisters.APIServiceLister, w *localAPIServices, log *zap.Logger) *registrar {
	return &registrar{
		client:      client,
		lister:      lister,
		local:       w,
		log:         log,
		wasRemote:   sets.New[string](),
		withoutEtcd: func() bool { return false },
		done:        sets.New[string](),
		missing:     sets.KeySet(w.builtIn),
		registered:  make(chan struct{}),
	}
}

// prepare makes the queue. The controller's Run calls it, because a workqueue starts a goroutine.
func (r *registrar) prepare() {
	r.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		// Retries stay within 5 s, so that a store that becomes ready during startup does not delay registration for
		// minutes.
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, 5*time.Second),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "autoregister", Clock: run.QueueClock},
	)
}

// run registers until ctx ends. All caches must have synced, including the cache of CRDs: otherwise the APIServices of CRDs
// that are not listed yet would be deleted as leftovers.
func (r *registrar) run(ctx context.Context) error {
	existing, err := r.lister.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("register local apiservices: list: %w", err)
	}
	r.atStart = sets.New[string]()
	for _, o := range existing {
		r.atStart.Insert(o.Name)
		r.queue.Add(o.Name)
	}
	for name := range r.local.builtIn {
		r.queue.Add(name)
	}
	for name := range r.local.unlisted {
		r.log.Warn("local group-version has no known priority and gets no APIService", zap.String("apiservice", name))
	}
	if len(r.local.builtIn) == 0 {
		close(r.registered)
	}
	runWorkers(ctx, r.queue, registrationWorkers, func(name string) {
		if r.withoutEtcd() {
			r.queue.AddAfter(name, withoutEtcdRetry)
			return
		}
		if err := r.sync(ctx, name); err != nil {
			if ctx.Err() == nil {
				r.log.Log(logging.RetryLevel(r.queue.NumRequeues(name)), "failed to register an APIService; retrying", zap.String("apiservice", name), zap.Error(err))
			}
			r.queue.AddRateLimited(name)
			return
		}
		r.queue.Forget(name)
		r.markDone(name)
	})
	return nil
}

func (r *registrar) markDone(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done.Insert(name)
	if r.missing.Has(name) {
		r.missing.Delete(name)
		if r.missing.Len() == 0 {
			close(r.registered)
		}
	}
}

func (r *registrar) isDone(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done.Has(name)
}

func (r *registrar) sync(ctx context.Context, name string) error {
	current, err := r.lister.Get(name)
	if apierrors.IsNotFound(err) {
		current = nil
	} else if err != nil {
		return fmt.Errorf("get apiservice %s: %w", name, err)
	}
	want, err := r.local.desired(name)
	if err != nil {
		return err
	}
	act := decide(current, want, r.atStart.Has(name), r.isDone(name))
	if r.mustRestore(name, current, want) {
		act = update
	}
	if act == leave {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := r.apply(ctx, act, current, want); err != nil {
		return fmt.Errorf("%s apiservice %s: %w", act, name, err)
	}
	r.log.Debug("registered", zap.String("apiservice", name), zap.Stringer("action", act))
	return nil
}

// becameLocal records that the Service of an APIService was removed, which makes it local. The registrar then restores the
// local group-version with its label and its priorities.
func (r *registrar) becameLocal(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wasRemote.Insert(name)
}

// mustRestore reports whether an APIService must still be restored after becameLocal.
func (r *registrar) mustRestore(name string, current, want *apiregistrationv1.APIService) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.wasRemote.Has(name) {
		return false
	}
	if current == nil || want == nil || current.Spec.Service != nil ||
		current.Labels[managedLabel] == want.Labels[managedLabel] && equality.Semantic.DeepEqual(current.Spec, want.Spec) {
		r.wasRemote.Delete(name)
		return false
	}
	return true
}

// apply performs an action. An object that already exists, or no longer exists, is not an error: its pending event queues
// the name again. A conflict on update is an error, because the only update of a built-in APIService would be lost
// otherwise.
func (r *registrar) apply(ctx context.Context, act action, current, want *apiregistrationv1.APIService) error {
	var err error
	switch act {
	case create:
		_, err = r.client.Create(ctx, want.DeepCopy(), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
	case update:
		changed := current.DeepCopy()
		changed.Spec = *want.Spec.DeepCopy()
		if changed.Labels[managedLabel] == "" {
			metav1.SetMetaDataLabel(&changed.ObjectMeta, managedLabel, want.Labels[managedLabel])
		}
		_, err = r.client.Update(ctx, changed, metav1.UpdateOptions{})
	case remove:
		// The precondition prevents the deletion of an object with the same name that a user has just created.
		err = r.client.Delete(ctx, current.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(current.UID))})
	}
	if apierrors.IsNotFound(err) || (act == remove && apierrors.IsConflict(err)) {
		return nil
	}
	return err
}

// localAPIServices contains the local APIServices that should exist: the fixed built-in ones, and one for each version of a CRD.
type localAPIServices struct {
	builtIn map[string]*apiregistrationv1.APIService
	// unlisted are local group-versions without a known priority. They get no APIService but are served.
	unlisted map[string]*apiregistrationv1.APIService
	crds     apiextensionslisters.CustomResourceDefinitionLister // nil if CRDs are not served
}

func newLocalAPIServices(local []schema.GroupVersion, crds apiextensionslisters.CustomResourceDefinitionLister) *localAPIServices {
	w := &localAPIServices{
		builtIn:  make(map[string]*apiregistrationv1.APIService),
		unlisted: make(map[string]*apiregistrationv1.APIService),
		crds:     crds,
	}
	for _, gv := range local {
		if gv == ownGroupVersion {
			continue
		}
		p, ok := priorityFor(gv)
		if !ok {
			w.unlisted[apiServiceName(gv)] = localAPIService(gv, unlistedPriority, "")
			continue
		}
		w.builtIn[apiServiceName(gv)] = localAPIService(gv, p, managedOnStart)
	}
	return w
}

// desired returns the APIService that should exist under a name, or nil. Like upstream, a CRD does not replace a built-in
// group-version that it also declares.
func (w *localAPIServices) desired(name string) (*apiregistrationv1.APIService, error) {
	if builtIn, ok := w.builtIn[name]; ok {
		return builtIn, nil
	}
	if w.crds == nil {
		return nil, nil
	}
	crds, err := w.crds.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list custom resource definitions: %w", err)
	}
	for _, crd := range crds {
		for _, gv := range servedVersions(crd) {
			if apiServiceName(gv) == name && gv.Group != ownGroupVersion.Group {
				return localAPIService(gv, customPriority, managedAlways), nil
			}
		}
	}
	return nil, nil
}

// servedVersions returns the group-versions that a CRD serves. Like upstream, it does not wait for the Established
// condition: the CRD handler answers early requests.
func servedVersions(crd *apiextensionsv1.CustomResourceDefinition) []schema.GroupVersion {
	var gvs []schema.GroupVersion
	for _, v := range crd.Spec.Versions {
		if v.Served {
			gvs = append(gvs, schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name})
		}
	}
	return gvs
}

// served returns the APIService that a name implies if none is stored: this server serves its local group-versions whether
// or not the object exists.
func (w *localAPIServices) served(name string) (*apiregistrationv1.APIService, error) {
	if o, ok := w.unlisted[name]; ok {
		return o, nil
	}
	return w.desired(name)
}

// names returns every name for which served returns an APIService.
func (w *localAPIServices) names() ([]string, error) {
	names := slices.AppendSeq(slices.Collect(maps.Keys(w.builtIn)), maps.Keys(w.unlisted))
	if w.crds == nil {
		return names, nil
	}
	crds, err := w.crds.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list custom resource definitions: %w", err)
	}
	for _, crd := range crds {
		for _, gv := range servedVersions(crd) {
			names = append(names, apiServiceName(gv))
		}
	}
	return names, nil
}

func localAPIService(gv schema.GroupVersion, p priority, managed string) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{
			Name:   apiServiceName(gv),
			Labels: map[string]string{managedLabel: managed},
		},
		Spec: apiregistrationv1.APIServiceSpec{
			Group:                gv.Group,
			Version:              gv.Version,
			GroupPriorityMinimum: p.group,
			VersionPriority:      p.version,
		},
	}
}

// priority determines the position of a group-version in discovery: group among groups, version within its group, higher
// first.
type priority struct{ group, version int32 }

// customPriority is the priority that kube-apiserver assigns to the APIServices of CustomResourceDefinitions.
var customPriority = priority{1000, 100}

// unlistedPriority is the priority of a group-version without a known priority.
var unlistedPriority = priority{1000, 15}

// ownGroupVersion is the group-version of APIServices. It never has an APIService, so that a user cannot redirect it to a
// backend, and it comes first in discovery.
var ownGroupVersion = apiregistrationv1.SchemeGroupVersion

// ownPriority is higher than the maximum that validation accepts.
var ownPriority = priority{20001, 0}

// priorityFor returns the built-in priority of a group-version from kube-apiserver's table, so that discovery has the order
// that clients expect, or from Portico's additions. As in kube-apiserver, a group-version that is missing here gets no
// APIService: if a CRD could also serve it, it would otherwise stay registered forever.
func priorityFor(gv schema.GroupVersion) (priority, bool) {
	group, ok := builtIn()[gv.Group]
	if !ok {
		return priority{}, false
	}
	v, ok := group.versions[gv.Version]
	return priority{group.priority, v}, ok
}

type builtInGroup struct {
	priority int32
	versions map[string]int32
}

func builtIn() map[string]builtInGroup {
	return map[string]builtInGroup{
		"":                             {18000, map[string]int32{"v1": 1}},
		"apps":                         {17800, map[string]int32{"v1": 15}},
		"events.k8s.io":                {17750, map[string]int32{"v1": 15, "v1beta1": 5}},
		"authentication.k8s.io":        {17700, map[string]int32{"v1": 15, "v1beta1": 9, "v1alpha1": 1}},
		"authorization.k8s.io":         {17600, map[string]int32{"v1": 15}},
		"autoscaling":                  {17500, map[string]int32{"v1": 15, "v2": 30, "v2beta1": 9, "v2beta2": 1}},
		"batch":                        {17400, map[string]int32{"v1": 15, "v1beta1": 9, "v2alpha1": 9}},
		"certificates.k8s.io":          {17300, map[string]int32{"v1": 15, "v1beta1": 9, "v1alpha1": 1}},
		"networking.k8s.io":            {17200, map[string]int32{"v1": 15, "v1beta1": 9, "v1alpha1": 1}},
		"policy":                       {17100, map[string]int32{"v1": 15, "v1beta1": 9}},
		"rbac.authorization.k8s.io":    {17000, map[string]int32{"v1": 15}},
		"storage.k8s.io":               {16800, map[string]int32{"v1": 15, "v1beta1": 9, "v1alpha1": 1}},
		"apiextensions.k8s.io":         {16700, map[string]int32{"v1": 15}},
		"admissionregistration.k8s.io": {16700, map[string]int32{"v1": 15, "v1beta1": 12, "v1alpha1": 9}},
		"scheduling.k8s.io":            {16600, map[string]int32{"v1": 15}},
		"coordination.k8s.io":          {16500, map[string]int32{"v1": 15, "v1beta1": 13, "v1alpha2": 12}},
		"node.k8s.io":                  {16300, map[string]int32{"v1": 15, "v1beta1": 9, "v1alpha1": 1}},
		"discovery.k8s.io":             {16200, map[string]int32{"v1": 15, "v1beta1": 12}},
		"resource.k8s.io":              {16200, map[string]int32{"v1": 21, "v1beta2": 15, "v1beta1": 9}},
		"flowcontrol.apiserver.k8s.io": {16100, map[string]int32{"v1": 21, "v1beta3": 18, "v1beta2": 15, "v1beta1": 12, "v1alpha1": 9}},
		"internal.apiserver.k8s.io":    {16000, map[string]int32{"v1alpha1": 9}},
		"storagemigration.k8s.io":      {15800, map[string]int32{"v1": 15, "v1beta1": 9}},
		"lifecycle.k8s.io":             {15700, map[string]int32{"v1alpha1": 1}},
		// Portico's groups, after all groups of kube-apiserver.
		"routing.portico.dev":  {15600, map[string]int32{"v1alpha1": 1}},
		"clusters.portico.dev": {15500, map[string]int32{"v1alpha1": 1}},
	}
}

// apiServiceName returns the name that the APIService of a group-version must have; "v1." for the legacy group.
func apiServiceName(gv schema.GroupVersion) string { return gv.Version + "." + gv.Group }
