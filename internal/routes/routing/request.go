package routing

import (
	"net/http"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// The groups with requests that name metrics.
const (
	customMetrics   = "custom.metrics.k8s.io"
	externalMetrics = "external.metrics.k8s.io"
)

// HasMetrics reports whether requests of a group name metrics.
func HasMetrics(group string) bool { return group == customMetrics || group == externalMetrics }

// Request contains the properties of a request that rules match.
type Request struct {
	Verb string
	// Resource and Subresource identify the requested object. Metric is the metric, in groups that have metrics.
	Resource, Subresource, Metric string
	// Namespace and Name are empty if the request has none, or does not specify them.
	Namespace, Name string
	// AnyNamespace and AnyName mark requests for objects of several namespaces, or with several or unknown names.
	AnyNamespace, AnyName bool
	User                  string
	Header                http.Header
}

// NewRequest returns the properties of a request for a resource.
func NewRequest(info *apirequest.RequestInfo, user string, header http.Header) Request {
	q := Request{
		Verb: info.Verb, Resource: info.Resource, Subresource: info.Subresource, Namespace: info.Namespace, Name: info.Name,
		User: user, Header: header,
	}
	switch {
	case info.APIGroup == externalMetrics:
		// namespaces/NAMESPACE/METRIC
		q.Metric, q.Resource, q.Subresource, q.Name = info.Resource, "", "", ""
		return q
	case info.APIGroup == customMetrics && info.Resource == "metrics" && info.Namespace != "":
		// namespaces/NAMESPACE/metrics/METRIC is a metric of the namespace.
		q.Metric, q.Resource, q.Subresource, q.Name = info.Name, "namespaces", "", info.Namespace
		return q
	case info.APIGroup == customMetrics:
		// [namespaces/NAMESPACE/]RESOURCE/NAME/METRIC, in which the name may be *
		q.Metric, q.Subresource = info.Subresource, ""
		if info.Name == "*" {
			q.Name = ""
		}
	}
	q.AnyName = q.Name == ""
	q.AnyNamespace = q.Namespace == "" && q.AnyName && q.Verb != "create"
	return q
}

// ForObject returns the request for one of the requested objects.
func (q Request) ForObject(namespace, name string) Request {
	q.Namespace, q.Name, q.AnyNamespace, q.AnyName = namespace, name, false, false
	return q
}

// Reads reports whether the request is a read.
func (q *Request) Reads() bool { return q.Verb == "get" || q.Verb == "list" || q.Verb == "watch" }

func (q *Request) fullResource() string {
	if q.Subresource == "" {
		return q.Resource
	}
	return q.Resource + "/" + q.Subresource
}
