package main

import "github.com/spf13/pflag"

// ignoredSwitches lists boolean flags of kube-apiserver that have no effect here.
var ignoredSwitches = []string{
	"aggregator-reject-forwarding-redirect",
	"audit-log-batch-throttle-enable",
	"audit-log-truncate-enabled",
	"audit-webhook-batch-throttle-enable",
	"audit-webhook-truncate-enabled",
	"disable-http2-serving",
	"emulation-forward-compatible",
	"enable-garbage-collector",
	"enable-logs-handler",
	"log-json-split-stream",
	"log-text-split-stream",
	"permit-address-sharing",
	"permit-port-sharing",
	"runtime-config-emulation-forward-compatible",
	"service-account-lookup",
	"shutdown-send-retry-after",
	"watch-cache",
}

// ignoredValues lists flags of kube-apiserver with a value that have no effect here.
var ignoredValues = []string{
	"admission-control",
	"allow-metric-labels",
	"allow-metric-labels-manifest",
	"apiserver-count",
	"audit-log-batch-buffer-size",
	"audit-log-batch-max-size",
	"audit-log-batch-max-wait",
	"audit-log-batch-throttle-burst",
	"audit-log-batch-throttle-qps",
	"audit-log-format",
	"audit-log-truncate-max-batch-size",
	"audit-log-truncate-max-event-size",
	"audit-log-version",
	"audit-webhook-batch-buffer-size",
	"audit-webhook-batch-initial-backoff",
	"audit-webhook-batch-throttle-burst",
	"audit-webhook-batch-throttle-qps",
	"audit-webhook-mode",
	"audit-webhook-truncate-max-batch-size",
	"audit-webhook-truncate-max-event-size",
	"audit-webhook-version",
	"authorization-policy-file",
	"coordinated-leadership-lease-duration",
	"coordinated-leadership-renew-deadline",
	"coordinated-leadership-retry-period",
	"debug-socket-path",
	"default-not-ready-toleration-seconds",
	"default-unreachable-toleration-seconds",
	"default-watch-cache-size",
	"delete-collection-workers",
	"disabled-metrics",
	"emulated-version",
	"endpoint-reconciler-type",
	"etcd-count-metric-poll-period",
	"etcd-db-metric-poll-interval",
	"etcd-healthcheck-timeout",
	"etcd-readycheck-timeout",
	"etcd-servers-overrides",
	"external-hostname",
	"feature-gates",
	"http2-max-streams-per-connection",
	"kubelet-port",
	"kubelet-read-only-port",
	"kubernetes-service-node-port",
	"lease-reuse-duration-seconds",
	"livez-grace-period",
	"log-flush-frequency",
	"log-json-info-buffer-size",
	"log-text-info-buffer-size",
	"max-connection-bytes-per-sec",
	"min-compatibility-version",
	"min-request-timeout",
	"peer-ca-file",
	"service-account-jwks-uri",
	"service-account-signing-endpoint",
	"show-hidden-metrics-for-version",
	"shutdown-watch-termination-grace-period",
	"storage-backend",
	"storage-initialization-timeout",
	"tls-curve-preferences",
	"tls-sni-cert-key",
	"tracing-config-file",
	"vmodule",
	"watch-cache-sizes",
}

// addIgnored adds the flags that have no effect here. They accept any value.
func addIgnored(fs *pflag.FlagSet) {
	const usage = "accepted and has no effect"
	for _, name := range ignoredSwitches {
		fs.Bool(name, false, usage)
	}
	for _, name := range ignoredValues {
		fs.StringArray(name, nil, usage)
	}
}
