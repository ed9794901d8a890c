package apiservice

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/logging"
	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routes/v1alpha1"
	"portico.dev/internal/routetable"
	"portico.dev/internal/run"
)

// apiRouteStatusWriter writes the status of APIRoutes on the leading replica, like statusWriter does for APIServices.
type apiRouteStatusWriter struct {
	c         *Controller
	queue     workqueue.TypedRateLimitingInterface[string]
	debouncer debouncer
	writes    writeLimits
}

func (s *apiRouteStatusWriter) prepare() {
	s.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](20*time.Millisecond, 5*time.Second),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "apiroute_status", Clock: run.QueueClock},
	)
}

func (s *apiRouteStatusWriter) run(ctx context.Context) {
	runWorkers(ctx, s.queue, 1, func(name string) {
		if err := s.sync(ctx, name); err != nil {
			if ctx.Err() == nil && !apierrors.IsConflict(err) {
				s.c.log.Log(logging.RetryLevel(s.queue.NumRequeues(name)), "failed to write the status of an APIRoute; retrying", zap.String("apiroute", name), zap.Error(err))
			}
			s.queue.AddRateLimited(name)
			return
		}
		s.queue.Forget(name)
	})
}

func (s *apiRouteStatusWriter) sync(ctx context.Context, name string) error {
	object, err := s.c.apiRoute(name)
	if err != nil {
		return fmt.Errorf("get apiroute %s: %w", name, err)
	}
	if object == nil {
		s.debouncer.forget(name)
		s.writes.forget(name)
		return nil
	}
	wanted, wait := s.desired(object)
	if wait > 0 {
		s.queue.AddAfter(name, wait)
	}
	if wanted == nil || !s.c.replicas.leads() {
		return nil
	}
	if !s.c.ownsAPIRouteStatus(name) {
		s.queue.AddAfter(name, ownerInterval)
		return nil
	}
	changed := object.DeepCopy()
	changed.Status = *wanted
	if equality.Semantic.DeepEqual(object.Status, changed.Status) {
		return nil
	}
	if delay := s.writes.delay(name); delay > 0 {
		s.queue.AddAfter(name, delay)
		s.writes.warned.Do(func() {
			s.c.log.Warn("status of an APIRoute changes too often; the next write is delayed: check that no other front door or gateway writes it",
				zap.String("apiroute", name), zap.Duration("delay", delay))
		})
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err = s.c.cfg.APIRoutes.Client.UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("update status of apiroute %s: %w", name, err)
	}
	return nil
}

// desired returns the status that an APIRoute should have, or nil while the table is about to change. It also returns the
// time until the next check, 0 for none.
func (s *apiRouteStatusWriter) desired(object *v1alpha1.APIRoute) (*v1alpha1.APIRouteStatus, time.Duration) {
	status := &v1alpha1.APIRouteStatus{Conditions: append([]metav1.Condition(nil), object.Status.Conditions...)}
	set := func(list *[]metav1.Condition, kind string, is metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(list, metav1.Condition{Type: kind, Status: is, Reason: reason, Message: message, ObservedGeneration: object.Generation})
	}
	refuse := func(reason, message string) (*v1alpha1.APIRouteStatus, time.Duration) {
		status.Rules = onlyRollbacks(object)
		set(&status.Conditions, v1alpha1.ConditionAccepted, metav1.ConditionFalse, reason, message)
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionAvailable)
		return status, 0
	}
	route, ok := s.c.Table().Lookup(routing.GroupVersionOf(object.Name))
	if _, err := s.c.lister.Get(object.Name); apierrors.IsNotFound(err) && (!ok || !route.Local) {
		return refuse(v1alpha1.ReasonNoAPIService, s.c.cfg.APIRoutes.missing(object.Name))
	}
	switch {
	case !ok:
		return nil, 0
	case route.Local:
		return refuse(v1alpha1.ReasonLocalAPIService, "the APIService "+object.Name+" refers to no Service: the front door serves the group-version itself")
	}
	if _, err := routing.Compile(object, s.c.namespaceLabels); err != nil {
		return refuse(v1alpha1.ReasonInvalid, SingleLine(err.Error()))
	}
	if route.Routing == nil || route.Routing.UID != object.UID || route.Routing.Generation != object.Generation {
		return nil, 0 // the next table enqueues the name again
	}
	set(&status.Conditions, v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "the route is in effect")
	wait := s.fillParts(object, route, status, set)
	return status, wait
}

// fillParts sets the conditions of backends and rules, and the conditions of the APIRoute that follow from them.
func (s *apiRouteStatusWriter) fillParts(object *v1alpha1.APIRoute, route *routetable.Route, status *v1alpha1.APIRouteStatus,
	set func(list *[]metav1.Condition, kind string, is metav1.ConditionStatus, reason, message string),
) (wait time.Duration) {
	state := make([]metav1.ConditionStatus, len(route.Parts))
	for i, part := range route.Parts {
		name := route.Routing.Backends[i].Name
		before := conditionsOf(object.Status.Backends, name)
		c, left := s.fold(part, before)
		if left > 0 && (wait == 0 || left < wait) {
			wait = left
		}
		state[i] = metav1.ConditionStatus(c.Status)
		set(&before, v1alpha1.ConditionAvailable, state[i], c.Reason, c.Message)
		status.Backends = append(status.Backends, v1alpha1.NamedConditions{Name: name, Conditions: before})
	}
	names := func(of []int) (missing []string, unknown bool) {
		for _, i := range of {
			if state[i] != metav1.ConditionTrue {
				missing = append(missing, route.Routing.Backends[i].Name)
				unknown = unknown || state[i] == metav1.ConditionUnknown
			}
		}
		return missing, unknown
	}
	judge := func(list *[]metav1.Condition, of []int, fallback int) {
		missing, unknown := names(of)
		is, reason, message := metav1.ConditionFalse, v1alpha1.ReasonBackendsUnavailable, "not available: "+strings.Join(missing, ", ")
		switch {
		case len(missing) == 0:
			is, reason, message = metav1.ConditionTrue, v1alpha1.ReasonBackendsAvailable, "all backends are available"
		case fallback >= 0 && state[fallback] == metav1.ConditionTrue:
			is, reason, message = metav1.ConditionTrue, v1alpha1.ReasonFallback, message+"; requests go to "+route.Routing.Backends[fallback].Name
		case unknown:
			is = metav1.ConditionUnknown
		}
		set(list, v1alpha1.ConditionAvailable, is, reason, message)
	}
	var used []int
	for i, is := range route.Routing.InUse() {
		if is {
			used = append(used, i)
		}
	}
	judge(&status.Conditions, used, -1)
	for _, rule := range route.Routing.Rules() {
		is := v1alpha1.RuleStatus{Name: rule.Name}
		if before := ruleStatus(object, rule.Name); before != nil {
			is.Conditions, is.RolledBack = append([]metav1.Condition(nil), before.Conditions...), before.RolledBack
			if routing.RollbackOf(object, before) == nil { // belongs to a previous spec
				meta.RemoveStatusCondition(&is.Conditions, v1alpha1.ConditionRolledBack)
				is.RolledBack = nil
			}
		}
		list := is.Conditions
		if rule.Useful {
			set(&list, v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "the rule is in effect")
		} else {
			set(&list, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonNeverMatches, "earlier rules take all of its requests")
		}
		judge(&list, rule.Backends, rule.Fallback)
		is.Conditions = list
		status.Rules = append(status.Rules, is)
	}
	return wait
}

// fold returns the condition of a backend from the verdicts of all replicas, debounced like the condition of an APIService.
func (s *apiRouteStatusWriter) fold(part *routetable.Route, before []metav1.Condition) (apiregistrationv1.APIServiceCondition, time.Duration) {
	verdicts := s.c.replicas.verdicts(part)
	if s.c.replicas.size() == 1 {
		s.debouncer.forget(part.Name)
		return part.Condition, 0
	}
	wanted := fold(verdicts)
	wanted.Type = apiregistrationv1.Available
	var stored []apiregistrationv1.APIServiceCondition
	if c := meta.FindStatusCondition(before, v1alpha1.ConditionAvailable); c != nil {
		stored = append(stored, apiregistrationv1.APIServiceCondition{
			Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
		})
	}
	debounced, wait := s.debouncer.debounce(part.Name, stored, []apiregistrationv1.APIServiceCondition{wanted}, time.Now())
	return debounced[0], wait
}

func conditionsOf(list []v1alpha1.NamedConditions, name string) []metav1.Condition {
	for _, n := range list {
		if n.Name == name {
			return append([]metav1.Condition(nil), n.Conditions...)
		}
	}
	return nil
}
