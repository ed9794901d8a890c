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
	"portico.dev/internal/transport"
)

// entry is what the loop knows of one APIService, or of a group-version that is served without one.
type entry struct {
	object *apiregistrationv1.APIService
	// options are the object's annotations, and complaints say which of them make no sense.
	options    Options
	complaints []string

	backend   *transport.Backend
	base      string // of the backend's URLs
	endpoints []transport.Endpoint
	evidence  evidence
	// absentSince is since when the Service has been missing, zero while it is there.
	absentSince time.Time
	// moved is set when something changed about what the APIService refers to, until the monitor has been told.
	moved bool
	// route is nil until the first verdict.
	route *Route
}

func (e *entry) groupVersion() schema.GroupVersion { return groupVersionOf(e.object) }

// askable reports whether there is something to probe.
func (e *entry) askable() bool {
	return e.backend != nil && e.evidence.problem == nil && e.evidence.bundleError == nil
}

func groupVersionOf(o *apiregistrationv1.APIService) schema.GroupVersion {
	return schema.GroupVersion{Group: o.Spec.Group, Version: o.Spec.Version}
}

// follow reads the caches for one name and finds its backend. It reports whether an entry went.
func (c *Controller) follow(name string) (gone bool) {
	object, err := c.lookup(name)
	if err != nil {
		// Only a cache was read; this is a mistake of ours, and the entry stays as it was.
		c.log.Error("look up APIService", zap.String("apiservice", name), zap.Error(err))
		return false
	}
	e, known := c.entries[name]
	if object == nil {
		if known {
			delete(c.entries, name)
			c.cfg.Metrics.Forget(name)
			c.journal.forget(name)
			c.reconsider(e.object.Spec.Service)
		}
		return known
	}
	if !known {
		e = &entry{}
		c.entries[name] = e
	}
	e.moved = e.object == nil || !sameOrder(e.object, object)
	before := e.object
	e.object = object
	e.options, e.complaints = parseOptions(object.Annotations)
	switch {
	case before != nil && !sameOrder(before, object):
		c.reconsider(before.Spec.Service)
	case before == nil && e.options.MaxInFlight > 0:
		c.reconsider(object.Spec.Service)
	}
	if object.Spec.Service == nil {
		e.evidence, e.backend, e.endpoints = evidence{local: true}, nil, nil
		return false
	}
	c.locate(e)
	e.noteAbsence(before, time.Now())
	hidden, err := c.wanted.get(name)
	if err != nil {
		c.log.Error("look for local resources", zap.String("apiservice", name), zap.Error(err))
	}
	e.evidence.hidesLocal = hidden != nil
	return false
}

// reconsider looks again at all that refer to a Service, because one that did says something else now, or nothing. They
// share a backend, and with it the limit that the annotations of all of them set.
func (c *Controller) reconsider(ref *apiregistrationv1.ServiceReference) {
	if ref != nil {
		c.queue.Add(event{service: types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}})
	}
}

// limit is the smallest limit of requests in flight among the APIServices of one Service, 0 when none sets one.
func (c *Controller) limit(ref *apiregistrationv1.ServiceReference) int {
	smallest := 0
	for _, e := range c.entries {
		if n := e.options.MaxInFlight; n > 0 && (smallest == 0 || n < smallest) && servicePlace(e.object.Spec.Service) == servicePlace(ref) {
			smallest = n
		}
	}
	return smallest
}

// lookup returns what a name stands for, nil when for nothing.
func (c *Controller) lookup(name string) (*apiregistrationv1.APIService, error) {
	if name == apiServiceName(ownGroupVersion) {
		// Whoever could register a backend for our own group could take over every other.
		return localAPIService(ownGroupVersion, ownPriority, ""), nil
	}
	object, err := c.lister.Get(name)
	if apierrors.IsNotFound(err) {
		return c.wanted.served(name)
	}
	return object, err
}

// locate finds the backend of a remote APIService.
func (c *Controller) locate(e *entry) {
	spec := &e.object.Spec
	found := c.resolver.resolve(spec)
	e.evidence = evidence{problem: found.problem}
	if len(spec.CABundle) > 0 {
		_, e.evidence.bundleError = pki.ParseBundle(spec.CABundle)
	}
	e.base = "https://" + hostPort(serverName(spec.Service), portOf(spec.Service))
	e.backend = nil
	if found.spec == nil || e.evidence.bundleError != nil {
		e.endpoints = nil
		return
	}
	found.spec.MaxInFlight = c.limit(spec.Service)
	backend, err := c.cfg.Transport.Backend(*found.spec)
	if err != nil {
		e.evidence.bundleError = err
		e.endpoints = nil
		return
	}
	e.backend = backend
	e.moved = e.moved || !slices.Equal(e.endpoints, found.spec.Endpoints)
	e.endpoints = found.spec.Endpoints
}

// judge gives an entry its verdict and reports whether its route differs from before.
func (c *Controller) judge(name string, e *entry) bool {
	now := time.Now()
	e.evidence.heard, e.evidence.url, e.evidence.before = history{}, "", nil
	if m, ok := c.monitors.get(e.backend); ok && e.askable() {
		e.evidence.heard, e.evidence.url = m.history(e.groupVersion()), m.url(e.groupVersion())
	}
	e.evidence.wrongAnnotations, e.evidence.documentTrouble = e.complaints, c.troubles.get(name)
	e.evidence.debt = c.judgedDebtOf(name)
	if wait := e.evidence.nextChange(now); wait > 0 {
		c.queue.AddAfter(event{apiService: name}, wait)
	}
	before := e.route
	if before != nil && describes(before, e.object) {
		e.evidence.before = &before.Condition
	}
	after := &Route{
		GroupVersion:    e.groupVersion(),
		Name:            name,
		Local:           e.evidence.local,
		Backend:         e.backend,
		Condition:       verdict(e.evidence, now),
		GroupPriority:   e.object.Spec.GroupPriorityMinimum,
		VersionPriority: e.object.Spec.VersionPriority,
		UID:             e.object.UID,
		Annotations:     e.object.Annotations,
		Options:         e.options,
		Service:         e.object.Spec.Service,
		extra:           extraConditions(&e.object.Spec, e.evidence, now),
	}
	if before != nil && sameRoute(before, after) {
		return false
	}
	e.route = after
	c.note(before, after)
	return true
}

// sameRoute compares all that a reader of the table or of the status could see.
func sameRoute(a, b *Route) bool {
	return a.GroupVersion == b.GroupVersion && a.Name == b.Name && a.Local == b.Local && a.Backend == b.Backend &&
		a.Condition == b.Condition && a.GroupPriority == b.GroupPriority && a.VersionPriority == b.VersionPriority &&
		a.UID == b.UID && maps.Equal(a.Annotations, b.Annotations) && equality.Semantic.DeepEqual(a.Service, b.Service) &&
		slices.EqualFunc(a.extra, b.extra, sameButForTime)
}

func sameButForTime(a, b apiregistrationv1.APIServiceCondition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}

// note leaves a verdict where people look: metrics, the journal, the log.
func (c *Controller) note(before, after *Route) {
	if after.UID != "" {
		c.cfg.Metrics.Set(after.Name, after.Available())
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
	c.journal.add(after.Name, Transition{
		Time: after.Condition.LastTransitionTime.Time, From: from, To: after.Condition.Status,
		Reason: after.Condition.Reason, Message: after.Condition.Message,
	})
	log := c.log.Info
	if !after.Available() {
		log = c.log.Warn
	}
	log("APIService changed", zap.String("apiservice", after.Name), zap.String("available", string(after.Condition.Status)),
		zap.String("reason", after.Condition.Reason), zap.String("message", after.Condition.Message))
}

// orphanAfter is how long a Service may be missing before its APIService is called an orphan: longer than any
// reinstallation, so that what it says is worth a person's time.
const orphanAfter = 10 * time.Minute

// noteAbsence keeps in mind since when the Service has been missing. before is the object as it was, nil when the entry is
// new: then the status may hold what was found before this process started.
func (e *entry) noteAbsence(before *apiregistrationv1.APIService, now time.Time) {
	p := e.evidence.problem
	if p == nil || p.reason != serviceNotFound {
		e.absentSince = time.Time{}
		return
	}
	if before != nil && !equality.Semantic.DeepEqual(before.Spec.Service, e.object.Spec.Service) {
		e.absentSince = time.Time{} // another Service
	}
	if e.absentSince.IsZero() {
		e.absentSince = now
		if c, ok := find(e.object.Status.Conditions, orphaned); before == nil && ok && c.Status == apiregistrationv1.ConditionTrue {
			e.absentSince = now.Add(-orphanAfter)
		}
	}
	e.evidence.absentSince = e.absentSince
}

// nextChange is how long it takes until time alone changes the conditions, 0 when it never does.
func (e evidence) nextChange(now time.Time) time.Duration {
	var next time.Duration
	for _, at := range []time.Time{
		ifSet(e.absentSince, orphanAfter),
		ifSet(e.heard.last.certificateExpires, -certificateWarning),
	} {
		if left := at.Sub(now); left > 0 && (next == 0 || left < next) {
			next = left
		}
	}
	return next
}

func ifSet(t time.Time, d time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(d)
}

// troubleInterval is how often Config.DocumentTrouble is asked. What it tells concerns people, not requests.
const troubleInterval = 5 * time.Second

// troubles is what is wrong with the OpenAPI documents of backends, by APIService.
type troubles struct {
	mu sync.Mutex
	of map[string]string
}

func (t *troubles) get(name string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of[name]
}

// note is that text is said of name. Empty: nothing is.
func (t *troubles) note(name, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case text == "":
		delete(t.of, name)
	case t.of == nil:
		t.of = map[string]string{name: text}
	default:
		t.of[name] = text
	}
}

// replace returns the names of which something else is said now.
func (t *troubles) replace(now map[string]string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var differ []string
	for name, text := range now {
		if t.of[name] != text {
			differ = append(differ, name)
		}
	}
	for name := range t.of {
		if _, still := now[name]; !still {
			differ = append(differ, name)
		}
	}
	t.of = now
	return differ
}

// followDocuments asks for the state of documents until ctx ends.
func (c *Controller) followDocuments(ctx context.Context) {
	if c.cfg.DocumentTrouble == nil {
		return
	}
	tick := time.NewTicker(troubleInterval)
	defer tick.Stop()
	for {
		now := make(map[string]string)
		for _, r := range c.Table().Routes() {
			if r.Local {
				continue
			}
			if text := c.cfg.DocumentTrouble(r.Name); text != "" {
				now[r.Name] = plain(text)
			}
		}
		for _, name := range c.troubles.replace(now) {
			c.queue.Add(event{apiService: name})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Debts are what has to be cleaned up at backends, by APIService.
type Debts interface {
	// Owed says what is to be cleaned up at an APIService's backend, in words that are the same while it is the same;
	// empty when nothing is. It must not block.
	Owed(apiService string) string
	// Changed returns a channel that is closed when Owed next says something else. Take it before asking Owed.
	Changed() <-chan struct{}
}

func (c *Controller) debtOf(name string) string {
	if c.cfg.Debts == nil {
		return ""
	}
	return c.cfg.Debts.Owed(name)
}

// judgedDebtOf is the debt by which an APIService is about to be judged. It is noted, so that followDebts finds whoever was
// judged by another than there is now, whether its route is in the table already or not.
func (c *Controller) judgedDebtOf(name string) string {
	text := c.debtOf(name)
	c.debts.note(name, text)
	if c.debtOf(name) != text { // paid before it was noted
		c.queue.Add(event{apiService: name})
	}
	return text
}

// followDebts judges anew whoever owes something else than before, until ctx ends.
func (c *Controller) followDebts(ctx context.Context) {
	if c.cfg.Debts == nil {
		return
	}
	for {
		changed := c.cfg.Debts.Changed()
		now := make(map[string]string)
		for _, r := range c.Table().Routes() {
			if text := c.debtOf(r.Name); text != "" && !r.Local {
				now[r.Name] = text
			}
		}
		for _, name := range c.debts.replace(now) {
			c.queue.Add(event{apiService: name})
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}
