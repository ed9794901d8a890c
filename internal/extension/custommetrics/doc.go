// Package custommetrics hosts custom.metrics.k8s.io and external.metrics.k8s.io for several providers at once.
//
// The two groups are what HorizontalPodAutoscalers read besides CPU and memory. A group belongs to one APIService, so
// whoever serves it serves it alone: that is why nobody can run two adapters side by side. Here a group has several
// providers, and the first that knows a metric answers. One that is in trouble costs its own metrics and nothing else:
// the answer warns of it, and its extension.Source tells the rest of the program.
//
// Paths, kinds, discovery and refusals are those of the custom-metrics-apiserver library, on which every adapter is
// built, in custom.metrics.k8s.io v1beta1 and v1beta2 and external.metrics.k8s.io v1beta1:
//
//	/namespaces/NS/pods/NAME/METRIC           one object; * instead of NAME, with labelSelector: those it selects
//	/nodes/NAME/METRIC                        one object outside of namespaces
//	/namespaces/NS/metrics/METRIC             the namespace itself
//	/namespaces/NS/METRIC                     external.metrics.k8s.io: labelSelector selects series
//
// The providers here are made of prometheus-adapter's rule files and a Prometheus server (PrometheusProvider). Rules are
// checked more strictly than there, because requests bring text that templates were not made for: what goes into a query
// is checked or quoted, object names match as they are and not as regular expressions, a metric label selector may only
// use names that Prometheus labels can have, and a mistake anywhere in the file names its line and stops the start.
//
// Discovery must list metrics without asking anybody, so the provider lists series again and again; values are queried
// when a request asks. A rule whose series cannot be read keeps those that it had. Objects are the resources of the API
// by name and label, a snapshot too.
package custommetrics
