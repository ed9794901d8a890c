package console

import (
	"fmt"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/routes/v1alpha1"
	"portico.dev/internal/transport"
)

const (
	// maxRoutes, maxRouteRules and maxRouteBackends bound the part of the APIRoutes that is shown.
	maxRoutes, maxRouteRules, maxRouteBackends = 100, 50, 20
)

// publishRoutes requires mu. It is called after the APIRoutes were read, and with every sample of the traffic.
func (s *state) publishRoutes() {
	section := apiRoutes{Total: len(s.routes), Shown: []apiRoute{}}
	for i := range s.routes[:min(len(s.routes), maxRoutes)] {
		section.Shown = append(section.Shown, s.describeRoute(&s.routes[i]))
	}
	s.publish(sectionRoutes, section)
}

func (s *state) describeRoute(o *v1alpha1.APIRoute) apiRoute {
	r := apiRoute{Name: o.Name, State: stateUnknown, Backends: []routeBackend{}}
	for _, kind := range []string{v1alpha1.ConditionAvailable, v1alpha1.ConditionAccepted} {
		if c := meta.FindStatusCondition(o.Status.Conditions, kind); c != nil {
			r.State = stateOf(string(c.Status))
			if r.State != stateUp {
				r.Message = c.Reason + ": " + causeFirst(c.Message)
			}
			if kind == v1alpha1.ConditionAccepted && r.State != stateUp {
				break
			}
		}
	}
	for i := range o.Spec.Backends[:min(len(o.Spec.Backends), maxRouteBackends)] {
		r.Backends = append(r.Backends, s.describeRouteBackend(o, &o.Spec.Backends[i]))
	}
	for i := range o.Spec.Rules[:min(len(o.Spec.Rules), maxRouteRules)] {
		r.Rules = append(r.Rules, describeRule(o, &o.Spec.Rules[i]))
	}
	return r
}

func (s *state) describeRouteBackend(o *v1alpha1.APIRoute, b *v1alpha1.APIRouteBackend) routeBackend {
	out := routeBackend{Name: b.Name, Version: b.Version, State: stateUnknown, Rate: none, Failing: none}
	var served pool
	switch {
	case b.CustomResources != nil:
		out.Service = "custom resources"
	case b.Service != nil:
		at := adoption.Service{Namespace: b.Service.Namespace, Name: b.Service.Name, Port: 443}
		if b.Service.Port != nil {
			at.Port = *b.Service.Port
		}
		out.Service = at.String()
		served = pool{out.Service, transport.Trust(b.CABundle, b.InsecureSkipTLSVerify)}
	default:
		if r := s.rows[o.Name]; r != nil {
			out.Service, served = r.Service, r.pool
		}
	}
	i := slices.IndexFunc(o.Status.Backends, func(n v1alpha1.NamedConditions) bool { return n.Name == b.Name })
	if i >= 0 {
		if c := meta.FindStatusCondition(o.Status.Backends[i].Conditions, v1alpha1.ConditionAvailable); c != nil {
			out.State, out.Reason, out.Message = stateOf(string(c.Status)), c.Reason, causeFirst(c.Message)
		}
	}
	if served.service != "" {
		s.addTraffic(&out, served)
	}
	return out
}

// addTraffic adds the counters of all replicas for the pool of a backend.
func (s *state) addTraffic(b *routeBackend, served pool) {
	for id, sample := range s.samples {
		for p, d := range sample.deltas {
			if served.matches(p) && !math.IsNaN(d.rate) {
				b.add(d, s.charts.get(chartKey{id, p, "", "rate"}, listPoints))
			}
		}
	}
}

func (b *routeBackend) add(d between, points []value) {
	if math.IsNaN(float64(b.Rate)) {
		b.Rate, b.Failing, b.Series = value(d.rate), value(d.failures), points
		return
	}
	b.Rate, b.Failing, b.Series = b.Rate+value(d.rate), b.Failing+value(d.failures), sum(b.Series, points)
}

// sum adds two series that end at the same sample.
func sum(a, b []value) []value {
	if len(a) < len(b) {
		a, b = b, a
	}
	out := slices.Clone(a)
	for i := range b {
		at := len(a) - len(b) + i
		switch {
		case math.IsNaN(float64(out[at])):
			out[at] = b[i]
		case !math.IsNaN(float64(b[i])):
			out[at] += b[i]
		}
	}
	return out
}

func describeRule(o *v1alpha1.APIRoute, rule *v1alpha1.APIRouteRule) routeRule {
	out := routeRule{Name: rule.Name, Fallback: rule.Fallback, ReadOnly: rule.ReadOnly, To: []string{}}
	var total int64
	for _, ref := range rule.BackendRefs {
		total += weightOf(ref)
	}
	for _, ref := range rule.BackendRefs {
		to := ref.Name
		if len(rule.BackendRefs) > 1 && total > 0 {
			to += fmt.Sprintf(" %.0f%%", 100*float64(weightOf(ref))/float64(total))
		}
		out.To = append(out.To, to)
	}
	i := slices.IndexFunc(o.Status.Rules, func(s v1alpha1.RuleStatus) bool { return s.Name == rule.Name })
	if i < 0 {
		return out
	}
	for _, c := range o.Status.Rules[i].Conditions {
		rolledBack := c.Type == v1alpha1.ConditionRolledBack && c.Status == metav1.ConditionTrue
		if rolledBack {
			out.Back = o.Status.Rules[i].RolledBack
		}
		if rolledBack || c.Type != v1alpha1.ConditionRolledBack && c.Status == metav1.ConditionFalse {
			out.Notes = append(out.Notes, condition{
				Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: causeFirst(c.Message), Since: c.LastTransitionTime.Time, Bad: true,
			})
		}
	}
	return out
}

func weightOf(ref v1alpha1.BackendRef) int64 {
	if ref.Weight == nil {
		return 1
	}
	return int64(*ref.Weight)
}
