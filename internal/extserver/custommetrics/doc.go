// Package custommetrics serves custom.metrics.k8s.io and external.metrics.k8s.io from several providers.
//
// HorizontalPodAutoscalers read these two groups in addition to CPU and memory. A group belongs to one APIService, so one
// server must serve all of it: two adapters cannot run side by side. In this package a group has several providers, and the
// first one that has a metric serves it. A failed provider affects only its metrics: responses contain a warning, and its
// extension.Source reports the error.
//
// Paths, kinds, discovery and errors are the same as in custom-metrics-apiserver, which all adapters are based on, for
// v1beta1 and v1beta2 of custom.metrics.k8s.io and v1beta1 of external.metrics.k8s.io:
//
//	/namespaces/NS/pods/NAME/METRIC           one object; * instead of NAME with labelSelector for several objects
//	/nodes/NAME/METRIC                        one cluster-scoped object
//	/namespaces/NS/metrics/METRIC             the namespace itself
//	/namespaces/NS/METRIC                     external.metrics.k8s.io: labelSelector selects series
//
// PrometheusProvider implements a provider with the rule files of prometheus-adapter and a Prometheus server. It validates
// rules more strictly than prometheus-adapter, because requests contain text that templates are not prepared for. Text in a
// query is validated or quoted, object names match literally and not as regular expressions, and a metric label selector may
// only use valid names of Prometheus labels. An error anywhere in the file is reported with its line and prevents the start.
//
// Discovery must list metrics without a query, so the provider lists series periodically. Values are queried for each
// request. If the series of a rule cannot be listed, the rule keeps its previous series. The API's resources are a periodic
// snapshot too.
package custommetrics
