// Package custommetrics hosts custom.metrics.k8s.io and external.metrics.k8s.io for several providers at once.
//
// The two groups are what HorizontalPodAutoscalers read besides CPU and memory. A group belongs to one APIService, so
// whoever serves it serves it alone: that is why nobody can run two adapters side by side. Here a group has a row of
// providers, and the first that knows a metric answers. One that is in trouble costs its own metrics and nothing else:
// the answer warns of it, and its extension.Source tells the rest of the house.
//
// Paths, kinds, discovery and refusals are those of the custom-metrics-apiserver library, on which every adapter is
// built, in custom.metrics.k8s.io v1beta1 and v1beta2 and external.metrics.k8s.io v1beta1:
//
//	/namespaces/NS/pods/NAME/METRIC           one object; * instead of NAME, with labelSelector: those it selects
//	/nodes/NAME/METRIC                        one object outside of namespaces
//	/namespaces/NS/metrics/METRIC             the namespace itself
//	/namespaces/NS/METRIC                     external.metrics.k8s.io: labelSelector selects series
//
// The inner rooms are objects (what the API has), rules (prometheus-adapter's rule files) and prometheus (a provider
// made of the two).
package custommetrics
