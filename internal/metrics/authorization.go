package metrics

import "github.com/prometheus/client_golang/prometheus"

// Authorization are the metrics of who decides, under kube-apiserver's names. The label name is that of an authorizer in
// the configuration.
type Authorization struct {
	// Decisions is apiserver_authorization_decisions_total by type, name and decision: allowed or denied. No opinion is
	// not counted.
	Decisions *prometheus.CounterVec
	// WebhookCalls is apiserver_authorization_webhook_evaluations_total by name and result.
	WebhookCalls *prometheus.CounterVec
	// WebhookDuration is apiserver_authorization_webhook_duration_seconds by name and result.
	WebhookDuration *prometheus.HistogramVec
	// WebhookFailOpen is apiserver_authorization_webhook_evaluations_fail_open_total by name and result.
	WebhookFailOpen *prometheus.CounterVec
	// ConditionErrors is apiserver_authorization_match_condition_evaluation_errors_total by type and name.
	ConditionErrors *prometheus.CounterVec
	// ConditionExclusions is apiserver_authorization_match_condition_exclusions_total by type and name.
	ConditionExclusions *prometheus.CounterVec
	// Reloads is apiserver_authorization_config_controller_automatic_reloads_total by status: success or failure.
	Reloads *prometheus.CounterVec
	// ReloadTime is apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds by status.
	ReloadTime *prometheus.GaugeVec
}

// NewAuthorization registers the metrics of who decides on reg.
func NewAuthorization(reg prometheus.Registerer) *Authorization {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_authorization_" + name, Help: help}, labels))
	}
	return &Authorization{
		Decisions:    counter("decisions_total", "Requests that an authorizer allowed or denied.", "type", "name", "decision"),
		WebhookCalls: counter("webhook_evaluations_total", "Calls to authorization webhooks.", "name", "result"),
		WebhookDuration: register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_authorization_webhook_duration_seconds", Help: "Time that calls to authorization webhooks took.",
		}, []string{"name", "result"})),
		WebhookFailOpen:     counter("webhook_evaluations_fail_open_total", "Failed calls that the next authorizer was asked after.", "name", "result"),
		ConditionErrors:     counter("match_condition_evaluation_errors_total", "Requests for which a condition of a webhook had no value.", "type", "name"),
		ConditionExclusions: counter("match_condition_exclusions_total", "Requests that the conditions of a webhook kept from it.", "type", "name"),
		Reloads:             counter("config_controller_automatic_reloads_total", "Edits of the configuration file that were read.", "status"),
		ReloadTime: register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds",
			Help: "When an edit of the configuration file was last read.",
		}, []string{"status"})),
	}
}
