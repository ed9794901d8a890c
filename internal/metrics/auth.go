package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Auth are the metrics of authentication. No label holds what a client sent.
type Auth struct {
	reg      prometheus.Registerer
	attempts *prometheus.CounterVec
	duration *prometheus.HistogramVec
	users    *prometheus.CounterVec
	reloads  *prometheus.CounterVec
	reloaded *prometheus.GaugeVec
	keys     *prometheus.CounterVec
	reviews  *prometheus.CounterVec

	// What a request that authenticates counts, resolved once: it costs no look-up.
	succeeded prometheus.Counter
	success   prometheus.Observer
	other     prometheus.Counter

	// StaleTokens is serviceaccount_stale_tokens_total: service account tokens that were used after they should have
	// been replaced.
	StaleTokens prometheus.Counter
}

// NewAuth registers the metrics of authentication on reg.
func NewAuth(reg prometheus.Registerer) *Auth {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
	}
	a := &Auth{
		reg:      reg,
		attempts: counters("authentication_attempts", "Requests by what authentication made of them: success, failure or error.", "result"),
		duration: register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "authentication_duration_seconds",
			Help:    "Time that authentication took, by result.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"result"})),
		users:   counters("authenticated_user_requests", "Authenticated requests by class of user name.", "username"),
		reloads: counters("apiserver_authentication_config_controller_automatic_reloads_total", "Reloads of the authentication configuration, by status.", "status"),
		reloaded: register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds",
			Help: "When the authentication configuration was last reloaded, by status.",
		}, []string{"status"})),
		keys:    counters("portico_oidc_key_fetches_total", "Times that an issuer was asked for its keys, by issuer and result.", "issuer", "result"),
		reviews: counters("portico_token_webhook_reviews_total", "Tokens that the token review webhook was asked about, by result.", "result"),
		StaleTokens: register(reg, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "serviceaccount_stale_tokens_total",
			Help: "Service account tokens used after the moment by which they should have been replaced.",
		})),
	}
	a.succeeded, a.success = a.attempts.WithLabelValues("success"), a.duration.WithLabelValues("success")
	a.other = a.users.WithLabelValues("other")
	return a
}

// Attempt counts a request that authentication had an answer to: success, failure (nobody knows its sender) or error
// (a credential is bad).
func (a *Auth) Attempt(result string, took time.Duration) {
	if result == "success" {
		a.succeeded.Inc()
		a.success.Observe(took.Seconds())
		return
	}
	a.attempts.WithLabelValues(result).Inc()
	a.duration.WithLabelValues(result).Observe(took.Seconds())
}

// User counts a request of a user. Names fall into upstream's few classes, because there is no end of users.
func (a *Auth) User(name string) {
	switch {
	case name == "admin", name == "client", name == "kube_proxy", name == "kubelet", name == "system:serviceaccount:kube-system:default":
	case strings.Contains(name, "@"):
		name = "email_id"
	default:
		a.other.Inc()
		return
	}
	a.users.WithLabelValues(name).Inc()
}

// ConfigReloaded counts an attempt to read a changed authentication configuration.
func (a *Auth) ConfigReloaded(ok bool) {
	status := outcome(ok)
	a.reloads.WithLabelValues(status).Inc()
	a.reloaded.WithLabelValues(status).SetToCurrentTime()
}

// KeysFetched counts a look at a configured issuer.
func (a *Auth) KeysFetched(issuer string, ok bool) { a.keys.WithLabelValues(issuer, outcome(ok)).Inc() }

// ForgetIssuer removes the series of an issuer that is configured no more.
func (a *Auth) ForgetIssuer(issuer string) {
	a.keys.DeletePartialMatch(prometheus.Labels{"issuer": issuer})
}

// Reviewed counts a question to the token review webhook: success, failure (it does not know the token), error, or busy
// (too many others were waiting for it, so that it was not asked).
func (a *Auth) Reviewed(result string) { a.reviews.WithLabelValues(result).Inc() }

// Trust adds portico_trust_stale for a file that identities rest on: 1 while a version of it that was edited since
// cannot be used, and the last good one is in force.
func (a *Auth) Trust(file string, stale func() error) {
	register(a.reg, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "portico_trust_stale",
		Help:        "1 for each file of trust whose last good version is in force because the present one cannot be used.",
		ConstLabels: prometheus.Labels{"file": file},
	}, func() float64 {
		if stale() != nil {
			return 1
		}
		return 0
	}))
}

func outcome(ok bool) string {
	if ok {
		return "success"
	}
	return "failure"
}
