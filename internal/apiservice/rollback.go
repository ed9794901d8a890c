package apiservice

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"portico.dev/internal/metrics"
	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routes/v1alpha1"
	"portico.dev/internal/routetable"
	"portico.dev/internal/run"
)

// RollBack records in the status of an APIRoute that a backend of a rule has failed too many requests. This replica already
// sends it no requests; the other replicas follow when they read the status. It does not block. A failed write is retried
// while the spec stays the same.
func (c *Controller) RollBack(route *routetable.Route, rule string, backend int, found routing.Errors) {
	name := route.Routing.Backends[backend].Name
	c.log.Warn("backend failed too many requests; sending its requests to the first backend of the rule", zap.String("apiroute", route.Name), zap.String("rule", rule),
		zap.String("backend", name), zap.Int("failed", found.Failed), zap.Int("requests", found.Requests), zap.Duration("interval", found.Interval))
	c.rollbacks.queue.Add(rollback{
		apiRoute: route.Name, uid: route.Routing.UID, generation: route.Routing.Generation, rule: rule, backend: name, found: found,
	})
}

// rollback is a backend of a rule that has failed too many requests.
type rollback struct {
	apiRoute   string
	uid        types.UID
	generation int64
	rule       string
	backend    string
	found      routing.Errors
}

// rollbackWriter writes the condition RolledBack of rules. The replica that detected the failures writes it, which may not
// be the leader; the leader preserves it.
type rollbackWriter struct {
	c     *Controller
	queue workqueue.TypedRateLimitingInterface[rollback] // at most one item for each backend of each rule
}

func (s *rollbackWriter) prepare() {
	s.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[rollback](20*time.Millisecond, 5*time.Second),
		workqueue.TypedRateLimitingQueueConfig[rollback]{Name: "apiroute_rollbacks", Clock: run.QueueClock},
	)
}

func (s *rollbackWriter) run(ctx context.Context) {
	runWorkers(ctx, s.queue, 1, func(b rollback) {
		if err := s.sync(ctx, b); err != nil {
			if ctx.Err() == nil && !apierrors.IsConflict(err) {
				s.c.log.Warn("failed to write the rollback to the status of an APIRoute; retrying", zap.String("apiroute", b.apiRoute), zap.Error(err))
			}
			s.queue.AddRateLimited(b)
			return
		}
		s.queue.Forget(b)
	})
}

func (s *rollbackWriter) sync(ctx context.Context, b rollback) error {
	object, err := s.c.apiRoute(b.apiRoute)
	if err != nil {
		return fmt.Errorf("get apiroute %s: %w", b.apiRoute, err)
	}
	if object == nil || object.UID != b.uid || object.Generation != b.generation {
		return nil // the spec has changed, which enables the backend again
	}
	changed := object.DeepCopy()
	first, ok := addRollback(changed, b)
	if !ok {
		return nil // another replica already recorded it
	}
	bounded, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if _, err := s.c.cfg.APIRoutes.Client.UpdateStatus(bounded, changed, metav1.UpdateOptions{}); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("update status of apiroute %s: %w", b.apiRoute, err)
	}
	s.c.events.enqueue(availabilityEvent{
		name: b.apiRoute, uid: b.uid, about: v1alpha1.GroupVersion.WithKind("APIRoute"), kind: corev1.EventTypeWarning, reason: rolledBack,
		message: "rule " + b.rule + ": " + b.message(first), at: time.Now(),
	})
	return nil
}

func (b *rollback) message(first string) string {
	return fmt.Sprintf("%d of %d requests for backend %s failed within %s: they go to %s now; change the spec of the APIRoute to try it again",
		b.found.Failed, b.found.Requests, b.backend, b.found.Interval, first)
}

// addRollback adds a rollback to the status of an APIRoute. It returns false if the status already has it, or if the rule
// does not exist. first is the backend that gets the requests.
func addRollback(o *v1alpha1.APIRoute, b rollback) (first string, ok bool) {
	at := slices.IndexFunc(o.Spec.Rules, func(r v1alpha1.APIRouteRule) bool { return r.Name == b.rule })
	if at < 0 {
		return "", false
	}
	first = o.Spec.Rules[at].BackendRefs[0].Name
	s := ruleStatus(o, b.rule)
	if s == nil {
		o.Status.Rules = append(o.Status.Rules, v1alpha1.RuleStatus{Name: b.rule})
		s = &o.Status.Rules[len(o.Status.Rules)-1]
	}
	message := b.message(first)
	if before := routing.RollbackOf(o, s); before == nil {
		s.RolledBack = nil // belongs to a previous spec
	} else {
		message = before.Message + "; " + message
	}
	if slices.Contains(s.RolledBack, b.backend) {
		return "", false
	}
	s.RolledBack = append(s.RolledBack, b.backend)
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionRolledBack, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonErrorRate, Message: message, ObservedGeneration: o.Generation,
	})
	return first, true
}

func ruleStatus(o *v1alpha1.APIRoute, rule string) *v1alpha1.RuleStatus {
	at := slices.IndexFunc(o.Status.Rules, func(s v1alpha1.RuleStatus) bool { return s.Name == rule })
	if at < 0 {
		return nil
	}
	return &o.Status.Rules[at]
}

// onlyRollbacks returns the rule status of an APIRoute that is not in effect: only the rollbacks, which stay until the spec
// changes.
func onlyRollbacks(o *v1alpha1.APIRoute) []v1alpha1.RuleStatus {
	var rules []v1alpha1.RuleStatus
	for i := range o.Status.Rules {
		if c := routing.RollbackOf(o, &o.Status.Rules[i]); c != nil {
			rules = append(rules, v1alpha1.RuleStatus{Name: o.Status.Rules[i].Name, Conditions: []metav1.Condition{*c}, RolledBack: o.Status.Rules[i].RolledBack})
		}
	}
	return rules
}

// rolledBackOf returns the rollbacks in the APIRoute of a route, for metrics.
func rolledBackOf(r *routetable.Route) (all []metrics.RolledBack) {
	if r.Routing == nil {
		return nil
	}
	for name := range strings.FieldsSeq(r.Routing.RolledBack) {
		rule, backend, _ := strings.Cut(name, "/")
		all = append(all, metrics.RolledBack{Rule: rule, Backend: backend})
	}
	return all
}
