package apiservice

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/pki"
	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routetable"
	"portico.dev/internal/transport"
)

// entry is the loop's state of one APIService, or of a local group-version without one.
type entry struct {
	object *apiregistrationv1.APIService
	// options are the object's annotations. invalid contains the annotations that were ignored.
	options routetable.Options
	invalid []string
	// routing is the APIRoute in effect, or nil. With an APIRoute, the entry has no backend; each backend has an entry
	// instead (apiroutes.go).
	routing *routing.Route

	backend   *transport.Backend
	base      string // of the backend's URLs
	endpoints []transport.Endpoint
	input     verdictInput
	// absentSince is the time since which the Service has been missing, zero if it exists.
	absentSince time.Time
	// changed is set when the registration or the endpoints changed, until the monitor is notified.
	changed bool
	// route is nil until the first verdict.
	route *routetable.Route
}

func (e *entry) groupVersion() schema.GroupVersion { return groupVersionOf(e.object) }

// probeable reports whether there is a backend to probe.
func (e *entry) probeable() bool {
	return e.backend != nil && e.input.problem == nil && e.input.bundleError == nil
}

func groupVersionOf(o *apiregistrationv1.APIService) schema.GroupVersion {
	return schema.GroupVersion{Group: o.Spec.Group, Version: o.Spec.Version}
}

// refresh reads the caches for one name and resolves its backend. It reports whether an entry was deleted.
func (c *Controller) refresh(name string) (gone bool) {
	backend := func() *transport.Backend {
		if e := c.entries[name]; e != nil {
			return e.backend
		}
		return nil
	}
	before := backend()
	gone = c.refreshEntry(name)
	c.users.set(name, before, backend())
	return gone
}

func (c *Controller) refreshEntry(name string) (gone bool) {
	object, err := c.lookup(name)
	if err != nil {
		// Reading a cache does not fail. The entry stays as it was.
		c.log.Error("failed to look up an APIService", zap.String("apiservice", name), zap.Error(err))
		return false
	}
	e, known := c.entries[name]
	if object == nil {
		if known {
			delete(c.entries, name)
			c.cfg.Metrics.Forget(name)
			c.transitions.forget(name)
			c.enqueueService(e.object.Spec.Service)
		}
		return known
	}
	if !known {
		e = &entry{}
		c.entries[name] = e
	}
	e.changed = e.object == nil || !sameRegistration(e.object, object)
	before := e.object
	e.object = object
	e.options, e.invalid = routetable.ParseOptions(object.Annotations)
	_, _, isPart := cutPart(name)
	if !isPart {
		e.routing = c.routingOf(object, e.routing)
	}
	switch {
	case before != nil && !sameRegistration(before, object):
		c.enqueueService(before.Spec.Service)
	case before == nil && e.options.MaxInFlight > 0:
		c.enqueueService(object.Spec.Service)
	}
	if object.Spec.Service == nil {
		e.input, e.backend, e.endpoints = verdictInput{local: true}, nil, nil
		if isPart {
			e.input = verdictInput{customResources: true, problem: c.customResourcesProblem(e.groupVersion())}
		}
		return false
	}
	if e.routing != nil {
		e.input, e.backend, e.endpoints, e.absentSince = verdictInput{}, nil, nil, time.Time{}
	} else {
		c.resolveBackend(e)
	}
	if isPart {
		return false
	}
	e.recordAbsence(before, time.Now())
	hidden, err := c.local.desired(name)
	if err != nil {
		c.log.Error("failed to look up local resources", zap.String("apiservice", name), zap.Error(err))
	}
	e.input.hidesLocal = hidden != nil && (e.routing == nil || e.routing.CustomResources() < 0)
	return false
}

// enqueueService enqueues all APIServices of a Service, because one of them changed or was deleted. They share a backend,
// and its limit of requests in flight depends on the annotations of all of them.
func (c *Controller) enqueueService(ref *apiregistrationv1.ServiceReference) {
	if ref != nil {
		c.queue.Add(queueItem{service: types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}})
	}
}

// maxInFlight returns the smallest limit of requests in flight among the APIServices of one Service, or 0 if none sets one.
func (c *Controller) maxInFlight(ref *apiregistrationv1.ServiceReference) int {
	smallest := 0
	for _, e := range c.entries {
		if n := e.options.MaxInFlight; n > 0 && (smallest == 0 || n < smallest) && sameService(e.object.Spec.Service, ref) {
			smallest = n
		}
	}
	return smallest
}

// sameService reports whether two APIServices refer to the same port of the same Service. It does not format anything,
// because on registration each of a thousand APIServices is compared with all others.
func sameService(a, b *apiregistrationv1.ServiceReference) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Namespace == b.Namespace && a.Name == b.Name && portOf(a) == portOf(b)
}

// lookup returns the APIService of a name, stored or implied by a local group-version, or nil.
func (c *Controller) lookup(name string) (*apiregistrationv1.APIService, error) {
	if apiService, backend, isPart := cutPart(name); isPart {
		return c.partObject(apiService, backend), nil
	}
	if name == apiServiceName(ownGroupVersion) {
		// A backend for this group could take over every other group.
		return localAPIService(ownGroupVersion, ownPriority, ""), nil
	}
	object, err := c.lister.Get(name)
	if apierrors.IsNotFound(err) {
		return c.local.served(name)
	}
	return object, err
}

// resolveBackend sets the backend of a remote APIService.
func (c *Controller) resolveBackend(e *entry) {
	spec := &e.object.Spec
	found := c.resolver.resolve(spec)
	e.input = verdictInput{problem: found.problem}
	if len(spec.CABundle) > 0 {
		_, e.input.bundleError = pki.ParseBundle(spec.CABundle)
	}
	e.base = "https://" + hostPort(serverName(spec.Service), portOf(spec.Service))
	e.backend = nil
	if found.spec == nil || e.input.bundleError != nil {
		e.endpoints = nil
		return
	}
	found.spec.MaxInFlight = c.maxInFlight(spec.Service)
	backend, err := c.cfg.Transport.Backend(*found.spec)
	if err != nil {
		e.input.bundleError = err
		e.endpoints = nil
		return
	}
	e.backend = backend
	e.changed = e.changed || !slices.Equal(e.endpoints, found.spec.Endpoints)
	e.endpoints = found.spec.Endpoints
}

// updateRoute computes an entry's verdict and reports whether its route changed.
func (c *Controller) updateRoute(name string, e *entry) bool {
	now := time.Now()
	e.input.probes, e.input.url, e.input.previous, e.input.ejected = history{}, "", nil, ""
	if m, ok := c.monitors.lookup(e.backend); ok && e.probeable() {
		e.input.probes, e.input.url = m.history(e.groupVersion()), m.url(e.groupVersion())
		if ejected, of := m.ejections(); of > 0 {
			e.input.ejected = ejectedMessage(ejected, of)
		}
	}
	e.input.invalidAnnotations, e.input.documentProblem = e.invalid, c.documentProblems.get(name)
	e.input.debt = c.recordDebt(name)
	if wait := e.input.untilTimeMatters(now); wait > 0 {
		c.queue.AddAfter(queueItem{apiService: name}, wait)
	}
	before := e.route
	if before != nil && madeFrom(before, e.object) {
		e.input.previous = &before.Condition
	}
	apiService, _, isPart := cutPart(name)
	if !isPart {
		apiService = ""
	}
	parts, backend := c.partsOf(e), e.backend
	if e.routing != nil {
		e.input.derived, backend = derive(e.routing, parts, e.input.previous), firstBackend(parts)
	}
	after := &routetable.Route{
		Of:              apiService,
		Routing:         e.routing,
		Parts:           parts,
		GroupVersion:    e.groupVersion(),
		Name:            name,
		Local:           e.input.local || e.input.customResources,
		Backend:         backend,
		Condition:       verdict(e.input, now),
		GroupPriority:   e.object.Spec.GroupPriorityMinimum,
		VersionPriority: e.object.Spec.VersionPriority,
		UID:             e.object.UID,
		Annotations:     e.object.Annotations,
		Options:         e.options,
		Service:         e.object.Spec.Service,
		Extra:           extraConditions(&e.object.Spec, e.input, now),
	}
	if !after.Available() {
		after.Replicas = c.ReachedBy(after)
		after.NeverAvailable = e.input.previous == nil || before.NeverAvailable
	}
	if before != nil && sameRoute(before, after) {
		return false
	}
	e.route = after
	c.report(before, after)
	return true
}

// sameRoute compares everything that is visible to readers of the table or of the status.
func sameRoute(a, b *routetable.Route) bool {
	return a.GroupVersion == b.GroupVersion && a.Name == b.Name && a.Local == b.Local && a.Backend == b.Backend &&
		a.Condition == b.Condition && a.GroupPriority == b.GroupPriority && a.VersionPriority == b.VersionPriority &&
		a.UID == b.UID && a.Routing == b.Routing && slices.Equal(a.Parts, b.Parts) && slices.Equal(a.Replicas, b.Replicas) && maps.Equal(a.Annotations, b.Annotations) && equality.Semantic.DeepEqual(a.Service, b.Service) &&
		slices.EqualFunc(a.Extra, b.Extra, sameExceptTime)
}

func sameExceptTime(a, b apiregistrationv1.APIServiceCondition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}

// report records a verdict in metrics, transitions and the log.
func (c *Controller) report(before, after *routetable.Route) {
	if after.UID != "" && after.Of == "" {
		c.cfg.Metrics.Set(after.Name, after.Available())
		c.cfg.Metrics.SetRolledBack(after.Name, rolledBackOf(after))
		if before != nil && before.Available() && !after.Available() {
			c.cfg.Metrics.Lost(after.Name, after.Condition.Reason)
		}
	}
	from := apiregistrationv1.ConditionUnknown
	if before != nil {
		from = before.Condition.Status
	}
	if after.Local || from == after.Condition.Status {
		return
	}
	c.transitions.add(after.Name, Transition{
		Time: after.Condition.LastTransitionTime.Time, From: from, To: after.Condition.Status,
		Reason: after.Condition.Reason, Message: after.Condition.Message,
	})
	log := c.log.Info
	if !after.Available() {
		log = c.log.Warn
	}
	log("APIService availability changed", zap.String("apiservice", after.Name), zap.String("available", string(after.Condition.Status)),
		zap.String("reason", after.Condition.Reason), zap.String("message", after.Condition.Message))
}

// orphanAfter is how long a Service may be missing before its APIService gets the Orphaned condition. It is longer than a
// reinstallation takes.
const orphanAfter = 10 * time.Minute

// recordAbsence records since when the Service has been missing. before is the previous object, or nil if the entry is new.
// In that case the status may contain the time from a previous process.
func (e *entry) recordAbsence(before *apiregistrationv1.APIService, now time.Time) {
	p := e.input.problem
	if p == nil || p.reason != reasonServiceNotFound {
		e.absentSince = time.Time{}
		return
	}
	if before != nil && !equality.Semantic.DeepEqual(before.Spec.Service, e.object.Spec.Service) {
		e.absentSince = time.Time{} // refers to a different Service
	}
	if e.absentSince.IsZero() {
		e.absentSince = now
		if c, ok := findCondition(e.object.Status.Conditions, orphaned); before == nil && ok && c.Status == apiregistrationv1.ConditionTrue {
			e.absentSince = now.Add(-orphanAfter)
		}
	}
	e.input.absentSince = e.absentSince
}

// untilTimeMatters returns the time until the passage of time alone changes the conditions, or 0 if it never does.
func (e verdictInput) untilTimeMatters(now time.Time) time.Duration {
	var next time.Duration
	for _, at := range []time.Time{
		addIfSet(e.absentSince, orphanAfter),
		addIfSet(e.probes.last.certificateExpires, -expiryWarning),
	} {
		if left := at.Sub(now); left > 0 && (next == 0 || left < next) {
			next = left
		}
	}
	return next
}

func addIfSet(t time.Time, d time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(d)
}

// documentInterval is how often Config.DocumentProblem is called. Its result is for users and does not affect requests.
const documentInterval = 5 * time.Second

// messages contains one text for each APIService that has one.
type messages struct {
	mu     sync.Mutex
	byName map[string]string
}

func (t *messages) get(name string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byName[name]
}

// set sets the text of name; empty deletes it.
func (t *messages) set(name, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case text == "":
		delete(t.byName, name)
	case t.byName == nil:
		t.byName = map[string]string{name: text}
	default:
		t.byName[name] = text
	}
}

// replace sets all texts and returns the names with a changed text.
func (t *messages) replace(now map[string]string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var differ []string
	for name, text := range now {
		if t.byName[name] != text {
			differ = append(differ, name)
		}
	}
	for name := range t.byName {
		if _, still := now[name]; !still {
			differ = append(differ, name)
		}
	}
	t.byName = now
	return differ
}

// watchDocuments polls the state of OpenAPI documents until ctx ends.
func (c *Controller) watchDocuments(ctx context.Context) {
	if c.cfg.DocumentProblem == nil {
		return
	}
	tick := time.NewTicker(documentInterval)
	defer tick.Stop()
	for {
		now := make(map[string]string)
		for _, r := range c.Table().Routes() {
			if r.Local {
				continue
			}
			if text := c.cfg.DocumentProblem(r.Name); text != "" {
				now[r.Name] = SingleLine(text)
			}
		}
		for _, name := range c.documentProblems.replace(now) {
			c.queue.Add(queueItem{apiService: name})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Debts reports which backends have cleanup debts, by APIService.
type Debts interface {
	// Message describes the cleanup debts of an APIService's backend, or of a backend of an APIRoute. It returns "" if
	// there are none. The text changes only when the debts do. It must not block.
	Message(apiService string) string
	// Changed returns a channel that is closed when Message may return another text. Call it before calling Message.
	Changed() <-chan struct{}
}

func (c *Controller) debtOf(name string) string {
	if c.cfg.Debts == nil {
		return ""
	}
	return c.cfg.Debts.Message(name)
}

// recordDebt returns the debt for an APIService's verdict and records it, so that watchDebts finds verdicts that are based
// on an older debt, whether or not their route is already in the table.
func (c *Controller) recordDebt(name string) string {
	text := c.debtOf(name)
	c.debts.set(name, text)
	if c.debtOf(name) != text { // it changed before it was recorded
		c.queue.Add(queueItem{apiService: name})
	}
	return text
}

// watchDebts recomputes verdicts when debts change, until ctx ends.
func (c *Controller) watchDebts(ctx context.Context) {
	if c.cfg.Debts == nil {
		return
	}
	for {
		changed := c.cfg.Debts.Changed()
		now := make(map[string]string)
		for _, r := range c.Table().All() {
			if text := c.debtOf(r.Name); text != "" && !r.Local {
				now[r.Name] = text
			}
		}
		for _, name := range c.debts.replace(now) {
			c.queue.Add(queueItem{apiService: name})
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}
