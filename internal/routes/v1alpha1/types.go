package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Default,type=string,JSONPath=`.spec.backends[0].name`,description="The first backend, which gets the requests that no rule matches"
// +kubebuilder:printcolumn:name=Accepted,type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,description="Whether the route is in effect"
// +kubebuilder:printcolumn:name=Available,type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`,description="Whether all backends are available"
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`

// APIRoute distributes the requests for one group-version over several extension servers, or routes them to one that
// serves the group in another version. It has the name of the group-version's APIService, "<version>.<group>". The
// APIService registers the group-version and has its priorities. Without the APIRoute, all requests go to the Service
// of the APIService.
type APIRoute struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is standard object metadata. The name must be the name of the APIService, "<version>.<group>".
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines which backends serve which requests.
	Spec APIRouteSpec `json:"spec"`
	// status is the observed state of the APIRoute.
	// +optional
	Status APIRouteStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// APIRouteList is a list of APIRoutes.
type APIRouteList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the APIRoutes.
	Items []APIRoute `json:"items"`
}

// APIRouteSpec defines which backends serve which requests.
type APIRouteSpec struct {
	// backends are the extension servers of the group-version. Requests that no rule matches go to the first one.
	// Discovery and OpenAPI contain the resources of all of them. If two serve the same resource, the document of the
	// first one applies.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	Backends []APIRouteBackend `json:"backends"`

	// rules select the backend of a request. The first rule that matches applies. Rules never change the rights of a
	// user: requests are authorized as they were sent, before the rules are evaluated.
	// +optional
	// +listType=atomic
	Rules []APIRouteRule `json:"rules,omitempty"`
}

// APIRouteBackend is an extension server, or the custom resources of the group-version.
type APIRouteBackend struct {
	// name identifies the backend in rules, conditions and messages. It is a DNS label.
	Name string `json:"name"`

	// service is the Service of the backend. If it is not set, the backend is the Service of the APIService, with the
	// caBundle and the insecureSkipTLSVerify of the APIService.
	// +optional
	Service *ServiceReference `json:"service,omitempty"`

	// customResources selects the custom resources that CustomResourceDefinitions of the group define in this
	// version, instead of a Service. The backend is available once one of them serves the version. Each rule of an
	// APIRoute with such a backend selects only by resources and namespaces, and only one backend, because each
	// object is stored in one place.
	// +optional
	CustomResources *CustomResources `json:"customResources,omitempty"`

	// caBundle contains the PEM certificates that sign the serving certificate of the backend, which must be valid
	// for "<name>.<namespace>.svc" of the service. If it is empty, the certificates that the system trusts are used.
	// +optional
	CABundle []byte `json:"caBundle,omitempty"`

	// insecureSkipTLSVerify accepts any server at the address of the service. Use caBundle instead.
	// +optional
	InsecureSkipTLSVerify bool `json:"insecureSkipTLSVerify,omitempty"`

	// version is the version of the group that the backend serves, if it differs from the version of the APIRoute.
	// Objects must have the same fields in both versions: only apiVersion is changed in responses. Such a backend
	// receives only reads.
	// +optional
	Version string `json:"version,omitempty"`
}

// CustomResources selects the custom resources of a group-version. It has no fields.
type CustomResources struct{}

// ServiceReference refers to a port of a Service.
type ServiceReference struct {
	// namespace is the namespace of the Service.
	Namespace string `json:"namespace"`
	// name is the name of the Service.
	Name string `json:"name"`
	// port is the port of the Service. Default 443.
	// +optional
	Port *int32 `json:"port,omitempty"`
}

// APIRouteRule selects the backend of matching requests.
type APIRouteRule struct {
	// name identifies the rule in conditions and messages. It is a DNS label.
	Name string `json:"name"`

	// matches are conditions. The rule matches a request if one of them does. Without conditions, it matches all
	// requests.
	// +optional
	// +listType=atomic
	Matches []APIRouteMatch `json:"matches,omitempty"`

	// readOnly refuses matching writes with 503 and Retry-After, while objects are copied from one backend to
	// another. Default false.
	// +optional
	ReadOnly bool `json:"readOnly,omitempty"`

	// backendRefs are the backends of matching requests. With several, each receives the reads of a share of the
	// users, and the writes of a share of the objects, in proportion to its weight. A user stays with a backend while
	// the weights are unchanged.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	BackendRefs []BackendRef `json:"backendRefs"`

	// fallback is the name of the backend that receives the requests while the selected one is unavailable.
	// +optional
	Fallback string `json:"fallback,omitempty"`

	// sharedReads lets equal matching reads share a response of the backend. If it is not set, each read is sent to
	// the backend.
	// +optional
	SharedReads *SharedReads `json:"sharedReads,omitempty"`

	// mirror sends copies of matching reads to a second backend, and compares its responses. Clients never receive
	// these responses. If it is not set, no copies are sent.
	// +optional
	Mirror *Mirror `json:"mirror,omitempty"`

	// rollback sends the requests of a failing backend to the first one of backendRefs. If it is not set, only a
	// change of the weights moves requests.
	// +optional
	Rollback *Rollback `json:"rollback,omitempty"`
}

// Mirror sends copies of gets and lists to a second backend, as the same user, and compares the status codes and the
// bodies. Watches, writes, upgrades, conditional requests and requests for a resource version are not copied.
type Mirror struct {
	// backend is the name of the backend that receives the copies. It must not be the only one that the rule selects.
	Backend string `json:"backend"`

	// percent is the percentage of reads that are copied, from 0 to 100. Default 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Percent *int32 `json:"percent,omitempty"`

	// ignore are fields that may differ, such as "status.lastSeen": names of fields, joined by dots, from the object,
	// or from each item of a list. Elements of lists have no name: "spec.containers.image" is that field of each of
	// them. Fields that every server sets may always differ: resourceVersion, uid, creationTimestamp, generation,
	// managedFields and selfLink of metadata, and times and values of resource metrics.
	// +optional
	// +listType=atomic
	Ignore []string `json:"ignore,omitempty"`
}

// Rollback sends the requests of a failing backend to the first one of backendRefs, until the spec of the APIRoute
// changes. Each replica of the front door counts separately, and the first one that detects a failing backend decides
// for all.
type Rollback struct {
	// errorPercent is the percentage of failed requests at which a backend counts as failing, from 1 to 100. A
	// request fails if the backend does not respond, or responds with 500, 502, 503 or 504.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	ErrorPercent int32 `json:"errorPercent"`

	// minRequests is the minimum number of requests within interval, from 1 to 100000. Default 20.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MinRequests *int32 `json:"minRequests,omitempty"`

	// interval is the time over which requests are counted, from 1s to 1h. Default 1m.
	// +optional
	Interval *metav1.Duration `json:"interval,omitempty"`
}

// SharedReads lets equal gets and lists, with the same path, query and headers, share a response. Each request is
// authorized before it gets one. Requests for a resource version and conditional requests are always sent to the
// backend, and watches unless watches is set.
type SharedReads struct {
	// maxAge is the maximum age of a shared response, up to 5m. With 0s, only requests that arrive before a response
	// is complete share it.
	MaxAge metav1.Duration `json:"maxAge"`

	// callers selects which callers share a response. Use All only if the responses of the backend do not depend on
	// the user: the backend receives a request from one of the callers, and does not authorize the other ones.
	// Default Same.
	// +optional
	Callers Callers `json:"callers,omitempty"`

	// watches lets one watch of the backend serve all clients that watch the same collection with the same selectors.
	// It requires callers: All. The front door watches the backend as its own user, and authorizes each client first.
	// Watches in Table form, and watches from a resource version that the shared watch does not have, are sent to the
	// backend. Default false: each watch is sent to the backend.
	// +optional
	Watches bool `json:"watches,omitempty"`

	// staleIfError is how long after maxAge a response is returned, with a warning, while the backend fails to
	// respond. Up to 24h. Default 0s: never.
	// +optional
	StaleIfError *metav1.Duration `json:"staleIfError,omitempty"`
}

// Callers selects the callers that share a response.
// +enum
// +kubebuilder:validation:Enum=Same;All
type Callers string

const (
	// CallersSame shares responses among requests with the same user, uid, groups and extra.
	CallersSame Callers = "Same"
	// CallersAll shares responses among all authorized requests.
	CallersAll Callers = "All"
)

// APIRouteMatch matches a request if all of its fields do. An empty field matches every request. In a pattern, "*"
// stands for any characters, and "?" for any single one.
type APIRouteMatch struct {
	// access is the kind of request: Read matches get, list and watch, Write matches all other verbs.
	// +optional
	Access Access `json:"access,omitempty"`

	// resources are patterns of plural names of resources. "pods" includes the subresources of pods, and "pods/log"
	// is one of them.
	// +optional
	// +listType=atomic
	Resources []string `json:"resources,omitempty"`

	// namespaces are patterns of namespaces.
	// +optional
	// +listType=atomic
	Namespaces []string `json:"namespaces,omitempty"`

	// namespaceSelector selects namespaces by their labels.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// names are patterns of names of objects.
	// +optional
	// +listType=atomic
	Names []string `json:"names,omitempty"`

	// metrics are patterns of names of metrics. They are valid only for custom.metrics.k8s.io and
	// external.metrics.k8s.io.
	// +optional
	// +listType=atomic
	Metrics []string `json:"metrics,omitempty"`

	// headers are headers that the request must have, for example in requests from testers of a backend.
	// +optional
	// +listType=atomic
	Headers []HeaderMatch `json:"headers,omitempty"`
}

// Access is a kind of request.
// +enum
// +kubebuilder:validation:Enum=Read;Write
type Access string

const (
	// AccessRead matches get, list and watch.
	AccessRead Access = "Read"
	// AccessWrite matches all other verbs.
	AccessWrite Access = "Write"
)

// HeaderMatch matches requests that have a header with this value.
type HeaderMatch struct {
	// name is the case-insensitive name of the header.
	Name string `json:"name"`
	// value is the exact value of the header.
	Value string `json:"value"`
}

// BackendRef refers to a backend of the APIRoute.
type BackendRef struct {
	// name is the name of the backend.
	Name string `json:"name"`
	// weight is the share of the backend in proportion to the sum of all weights of the rule, from 0 to 1000000. Default 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Weight *int32 `json:"weight,omitempty"`
}

// APIRouteStatus is the observed state of an APIRoute.
type APIRouteStatus struct {
	// conditions are the conditions Accepted and Available of the APIRoute.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// backends contains the condition Available of each backend.
	// +optional
	// +listType=map
	// +listMapKey=name
	Backends []NamedConditions `json:"backends,omitempty"`

	// rules contains the conditions Accepted, Available and RolledBack of each rule.
	// +optional
	// +listType=map
	// +listMapKey=name
	Rules []RuleStatus `json:"rules,omitempty"`
}

// RuleStatus is the observed state of a rule.
type RuleStatus struct {
	// name is the name of the rule.
	Name string `json:"name"`
	// conditions are the conditions of the rule.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// rolledBack are the names of the backends with requests that go to the first one of backendRefs, while the
	// condition RolledBack is True for the generation of the APIRoute.
	// +optional
	// +listType=set
	RolledBack []string `json:"rolledBack,omitempty"`
}

// NamedConditions are the conditions of a backend.
type NamedConditions struct {
	// name is the name of the backend.
	Name string `json:"name"`
	// conditions are the conditions of the backend.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Conditions of an APIRoute, its backends and its rules.
//
//reference:conditions Conditions of an APIRoute, its backends and its rules
const (
	// ConditionAccepted is True if the APIRoute, or a rule, is in effect. It is False for an APIRoute without an
	// APIService that has a Service, and for a rule that never matches.
	ConditionAccepted = "Accepted"
	// ConditionAvailable is True for a backend that any replica reaches, for a rule if all of its requests can be
	// served, and for the APIRoute if all of its backends are available. A backend has the same reasons as the
	// condition Available of an APIService.
	ConditionAvailable = "Available"
	// ConditionRolledBack is True for a rule while the requests of a backend go to the first one of backendRefs,
	// because too many failed. It applies to its observed generation, so that a change of the spec tries the backend
	// again. Otherwise it is absent.
	ConditionRolledBack = "RolledBack"
)

// Reasons of these conditions.
//
//reference:conditions Reasons of the conditions of an APIRoute
const (
	// ReasonAccepted is set if the APIRoute, or a rule, is in effect.
	ReasonAccepted = "Accepted"
	// ReasonNoAPIService is set if no APIService has the name of the APIRoute.
	ReasonNoAPIService = "NoAPIService"
	// ReasonLocalAPIService is set if the front door itself serves the group-version of the APIRoute.
	ReasonLocalAPIService = "LocalAPIService"
	// ReasonInvalid is set if an APIRoute was stored before it was found invalid. The APIRoute has no effect.
	ReasonInvalid = "Invalid"
	// ReasonNeverMatches is set if earlier rules match all requests of the rule.
	ReasonNeverMatches = "NeverMatches"
	// ReasonBackendsAvailable is set if the backends of the APIRoute, or of a rule, are available.
	ReasonBackendsAvailable = "BackendsAvailable"
	// ReasonBackendsUnavailable is set if some backends of the APIRoute, or of a rule, are not available. The message
	// names them.
	ReasonBackendsUnavailable = "BackendsUnavailable"
	// ReasonFallback is set if the backends of a rule are not all available, but its fallback is.
	ReasonFallback = "Fallback"
	// ReasonNoCustomResources is set for a backend of custom resources while no CustomResourceDefinition of the group
	// serves the version.
	ReasonNoCustomResources = "NoCustomResources"
	// ReasonCustomResources is set for a backend of custom resources that serves some.
	ReasonCustomResources = "CustomResources"
	// ReasonErrorRate is set if a backend of a rule failed more requests than rollback allows. The message contains
	// the backend and the numbers.
	ReasonErrorRate = "ErrorRate"
)
