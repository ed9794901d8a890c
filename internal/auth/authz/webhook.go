package authz

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/cel"
	library "k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	webhookmetrics "k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/internal/metrics"
	"portico.dev/internal/pki"
)

// failureLogInterval is the minimum interval between log messages about failures of a webhook.
const failureLogInterval = 10 * time.Second

// webhook is an authorization webhook. k8s.io/apiserver's webhook authorizer evaluates conditions, caches 8192
// decisions, retries, and supports both versions of SubjectAccessReview. This type adds the transport and a total
// deadline.
type webhook struct {
	authorizer.AuthorizerFunc
	name       string
	library    *library.WebhookAuthorizer
	transport  *webhookTransport
	timeout    time.Duration
	metrics    *metrics.Authorization
	lastLogged atomic.Int64 // time of the last failure log, in Unix nanoseconds
	log        *zap.Logger
}

func newWebhook(name string, c *apiserver.WebhookConfiguration, compiler cel.Compiler, from Config) (*webhook, error) {
	config, err := kubeconfig(*c.ConnectionInfo.KubeConfigFile)
	if err != nil {
		return nil, err
	}
	w := &webhook{name: name, timeout: c.Timeout.Duration, metrics: from.Metrics, log: from.Logger.With(zap.String("webhook", name))}
	w.AuthorizerFunc = w.decide
	if w.transport, err = newWebhookTransport(config, from.Dial); err != nil {
		return nil, err
	}
	// TLS is configured in the transport; client-go returns an error if it is configured twice.
	config.TLSClientConfig, config.Transport, config.Timeout = rest.TLSClientConfig{}, w.transport, w.timeout
	config.Proxy, config.QPS = nil, -1
	failed := authorizer.DecisionNoOpinion
	if c.FailurePolicy == apiserver.FailurePolicyDeny {
		failed = authorizer.DecisionDeny
	}
	w.library, err = library.New(config, c.SubjectAccessReviewVersion,
		cached(c.CacheAuthorizedRequests, c.AuthorizedTTL.Duration), cached(c.CacheUnauthorizedRequests, c.UnauthorizedTTL.Duration),
		backoff(), failed, c.MatchConditions, name, webhookMetrics{to: from.Metrics}, compiler)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// cached returns the TTL, or 0 if caching is disabled.
func cached(yes bool, ttl time.Duration) time.Duration {
	if !yes {
		return 0
	}
	return ttl
}

// backoff returns upstream's retry policy. The webhook's deadline ends the retries.
func backoff() wait.Backoff { return *library.DefaultRetryBackoff() }

// kubeconfig reads the address and the credentials of a webhook.
func kubeconfig(file string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", file, err)
	}
	switch {
	case !strings.HasPrefix(config.Host, "https://"):
		return nil, fmt.Errorf("kubeconfig %s: server %q: whoever says who may do what must prove its name; use https://", file, config.Host)
	case config.ExecProvider != nil || config.AuthProvider != nil:
		return nil, fmt.Errorf("kubeconfig %s: credentials from a program are not run here; use a certificate, token or tokenFile", file)
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", file, err)
	}
	return config, nil
}

// clientTLS converts a kubeconfig's TLS settings for pki.
func clientTLS(config *rest.Config) (pki.ClientOptions, error) {
	o := pki.ClientOptions{ServerName: config.ServerName, Insecure: config.Insecure}
	if len(config.CAData) > 0 {
		o.Roots = config.CAData
	}
	if len(config.CertData) > 0 {
		pair, err := pki.StaticKeyPair(config.CertData, config.KeyData)
		if err != nil {
			return o, fmt.Errorf("client certificate: %w", err)
		}
		o.Certificate = pair
	}
	return o, nil
}

// decide limits the whole call, including retries, to the webhook's timeout.
func (w *webhook) decide(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	bounded, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	decision, reason, err := w.library.Authorize(bounded, a)
	if err == nil {
		return decision, reason, nil
	}
	if ctx.Err() == nil { // otherwise the client disconnected, which is not a failure of the webhook
		w.logFailure(err)
	}
	if decision == authorizer.DecisionNoOpinion {
		result := "error"
		if errors.Is(err, context.DeadlineExceeded) {
			result = "timeout"
		}
		w.metrics.WebhookFailOpen.WithLabelValues(w.name, result).Inc()
	}
	return decision, reason, w.clientError(err)
}

func (w *webhook) logFailure(err error) {
	now, last := time.Now().UnixNano(), w.lastLogged.Load()
	if now-last >= int64(failureLogInterval) && w.lastLogged.CompareAndSwap(last, now) {
		w.log.Warn("authorization webhook failed; this message is rate limited", zap.Error(err))
	}
}

// clientError returns the error for the client: the name of the webhook and the kind of failure. The webhook's
// address and response appear only in the log (attack rows A26 and C13).
func (w *webhook) clientError(err error) error {
	switch {
	case errors.Is(err, errBusy):
		return fmt.Errorf("authorization webhook %q has too many calls to answer; try again", w.name)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("authorization webhook %q did not answer within %s", w.name, w.timeout)
	}
	return fmt.Errorf("authorization webhook %q failed", w.name)
}

// counted wraps ask and counts its decisions. It looks up the series once, not per request.
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

// webhookMetrics records the metrics of k8s.io/apiserver's webhook authorizer. Metrics by HTTP status code are
// omitted, because upstream removed them.
type webhookMetrics struct {
	webhookmetrics.NoopRequestMetrics
	cel.NoopMatcherMetrics
	to *metrics.Authorization
}

var _ webhookmetrics.AuthorizerMetrics = webhookMetrics{}

func (m webhookMetrics) RecordWebhookEvaluation(_ context.Context, name, result string) {
	m.to.WebhookCalls.WithLabelValues(name, result).Inc()
}

func (m webhookMetrics) RecordWebhookDuration(_ context.Context, name, result string, seconds float64) {
	m.to.WebhookDuration.WithLabelValues(name, result).Observe(seconds)
}

// RecordWebhookFailOpen is empty: upstream does not call it when the deadline set by webhook.decide expires.
// webhook.decide counts fail-open decisions instead.
func (webhookMetrics) RecordWebhookFailOpen(context.Context, string, string) {}

func (m webhookMetrics) RecordAuthorizationMatchConditionEvaluationFailure(_ context.Context, kind, name string) {
	m.to.ConditionErrors.WithLabelValues(kind, name).Inc()
}

func (m webhookMetrics) RecordAuthorizationMatchConditionExclusion(_ context.Context, kind, name string) {
	m.to.ConditionExclusions.WithLabelValues(kind, name).Inc()
}
