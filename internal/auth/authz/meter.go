package authz

import (
	"context"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/cel"
	library "k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"

	"portico.dev/internal/metrics"
)

// counted is ask, counting what it decides. The series are looked up once, here, and not with every request.
func counted(m *metrics.Authorization, kind, name string, ask authorizer.AuthorizerFunc) authorizer.AuthorizerFunc {
	allowed, denied := m.Decisions.WithLabelValues(kind, name, "allowed"), m.Decisions.WithLabelValues(kind, name, "denied")
	return func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		decision, reason, err := ask(ctx, a)
		switch decision {
		case authorizer.DecisionAllow:
			allowed.Inc()
		case authorizer.DecisionDeny:
			denied.Inc()
		}
		return decision, reason, err
	}
}

func countReload(m *metrics.Authorization, err error) {
	status := "success"
	if err != nil {
		status = "failure"
	}
	m.Reloads.WithLabelValues(status).Inc()
	m.ReloadTime.WithLabelValues(status).SetToCurrentTime()
}

// meter is how the library's webhook tells what it does. Its metrics by HTTP code are left out: upstream has dropped
// the ones that they fed.
type meter struct {
	library.NoopRequestMetrics
	cel.NoopMatcherMetrics
	to *metrics.Authorization
}

var _ library.AuthorizerMetrics = meter{}

func (m meter) RecordWebhookEvaluation(_ context.Context, name, result string) {
	m.to.WebhookCalls.WithLabelValues(name, result).Inc()
}

func (m meter) RecordWebhookDuration(_ context.Context, name, result string, seconds float64) {
	m.to.WebhookDuration.WithLabelValues(name, result).Observe(seconds)
}

// RecordWebhookFailOpen is empty: the library does not call it when the deadline that is ours has passed. See webhook.decide.
func (meter) RecordWebhookFailOpen(context.Context, string, string) {}

func (m meter) RecordAuthorizationMatchConditionEvaluationFailure(_ context.Context, kind, name string) {
	m.to.ConditionErrors.WithLabelValues(kind, name).Inc()
}

func (m meter) RecordAuthorizationMatchConditionExclusion(_ context.Context, kind, name string) {
	m.to.ConditionExclusions.WithLabelValues(kind, name).Inc()
}
