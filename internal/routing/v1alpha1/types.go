package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Default,type=string,JSONPath=`.spec.backends[0].name`,description="The first backend, which gets the requests that no rule matches"
// +kubebuilder:printcolumn:name=Accepted,type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,description="Whether the route is in effect"
// +kubebuilder:printcolumn:name=Available,type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`,description="Whether all backends are available"
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`

// APIRoute distributes the requests for one group-version over several extension servers, or over one that serves the group in
// another version. Its name is that of the APIService of the group-version, "<version>.<group>". The APIService registers the
// group-version and has its priorities. Without the APIRoute all requests go to the Service of the APIService.
type APIRoute struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is standard object metadata. The name is that of the APIService, "<version>.<group>".
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which requests go where.
	Spec APIRouteSpec `json:"spec"`
	// status is what was observed.
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

// APIRouteSpec says which requests go where.
type APIRouteSpec struct {
	// backends are the extension servers of the group-version. Requests that no rule matches go to the first one. Discovery and
	// OpenAPI show what all of them serve; where two serve the same resource, the document of the first one counts.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	Backends []APIRouteBackend `json:"backends"`

	// rules select the backend of a request. The first one that matches counts. Rules never change what a user is authorized
	// to do: requests are authorized as they were sent, before any rule is looked at.
	// +optional
	// +listType=atomic
	Rules []APIRouteRule `json:"rules,omitempty"`
}

// APIRouteBackend is an extension server, or the custom resources of the group-version.
type APIRouteBackend struct {
	// name is how rules, conditions and messages refer to the backend. It is a DNS label.
	Name string `json:"name"`

	// service is where the backend is reached. Without it, the backend is the Service of the APIService, with the caBundle and the
	// insecureSkipTLSVerify of the APIService.
	// +optional
	Service *ServiceReference `json:"service,omitempty"`

	// customResources makes the backend the custom resources that CustomResourceDefinitions of the group define in this version, in
	// place of a Service. It is available once one of them serves the version. Rules of an APIRoute with such a backend select by resources and
	// namespaces only, and one backend: each object is stored in one place.
	// +optional
	CustomResources *CustomResources `json:"customResources,omitempty"`

	// caBundle is the PEM certificates that sign the serving certificate of the backend, which must be valid for
	// "<name>.<namespace>.svc" of the service. If it is empty, the certificates that the system trusts are used.
	// +optional
	CABundle []byte `json:"caBundle,omitempty"`

	// insecureSkipTLSVerify accepts whoever answers at the address of the service. Use caBundle instead.
	// +optional
	InsecureSkipTLSVerify bool `json:"insecureSkipTLSVerify,omitempty"`

	// version is the version of the group that the backend serves, if it is another than that of the APIRoute. Objects must have
	// the same fields in both: only apiVersion is changed in what the backend answers. Such a backend gets reads only.
	// +optional
	Version string `json:"version,omitempty"`
}

// CustomResources are the custom resources of a group-version. It has no fields.
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

// APIRouteRule selects the backend of the requests that match.
type APIRouteRule struct {
	// name is how conditions and messages refer to the rule. It is a DNS label.
	Name string `json:"name"`

	// matches are conditions, of which one must hold. Without any, the rule matches all requests.
	// +optional
	// +listType=atomic
	Matches []APIRouteMatch `json:"matches,omitempty"`

	// readOnly refuses writes that match with 503 and Retry-After, while objects are copied from one backend to another. Default false.
	// +optional
	ReadOnly bool `json:"readOnly,omitempty"`

	// backendRefs are the backends of the requests that match. With several, each gets a share of the users for reads, and
	// of the objects for writes, in proportion to its weight: a user stays with a backend for as long as the weights stay.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	BackendRefs []BackendRef `json:"backendRefs"`

	// fallback is the name of the backend that gets the requests while the selected one is unavailable.
	// +optional
	Fallback string `json:"fallback,omitempty"`

	// sharedReads lets equal reads that match share a response of the backend. Without it, each is sent.
	// +optional
	SharedReads *SharedReads `json:"sharedReads,omitempty"`

	// mirror sends copies of reads that match to a second backend, and compares what it answers. Clients never get its responses. Without
	// it, no copies are sent.
	// +optional
	Mirror *Mirror `json:"mirror,omitempty"`

	// rollback sends the requests of a backend that fails to the first one of backendRefs. Without it, that is done by changing weights.
	// +optional
	Rollback *Rollback `json:"rollback,omitempty"`
}

// Mirror sends copies of gets and lists to a second backend, as the same user, and compares the codes and the bodies. Watches, writes,
// upgrades, conditional requests and requests for a resource version are not copied.
type Mirror struct {
	// backend is the name of the backend that gets the copies. It is not the only one that the rule selects.
	Backend string `json:"backend"`

	// percent is the share of the reads that are copied, from 0 to 100. Default 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Percent *int32 `json:"percent,omitempty"`

	// ignore are fields that may differ, such as "status.lastSeen": names of fields, joined by dots, from the object, and for a list from
	// each of its items. Elements of lists have no name: "spec.containers.image" is that field of each of them. Beside these, what
	// every server sets for itself may differ: resourceVersion, uid, creationTimestamp, generation, managedFields and selfLink of metadata, and
	// times and values of resource metrics.
	// +optional
	// +listType=atomic
	Ignore []string `json:"ignore,omitempty"`
}

// Rollback sends the requests of a backend that fails to the first one of backendRefs, until the spec of the APIRoute changes. Each
// replica of the front door counts for itself, and the first one that finds a backend failing decides for all.
type Rollback struct {
	// errorPercent is the share of failed requests, in percent, from which on a backend fails, from 1 to 100. A request has failed that got
	// no response of the backend, or 500, 502, 503 or 504.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	ErrorPercent int32 `json:"errorPercent"`

	// minRequests is how many requests there must have been within interval, from 1 to 100000. Default 20.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MinRequests *int32 `json:"minRequests,omitempty"`

	// interval is the time over which requests are counted, from 1s to 1h. Default 1m.
	// +optional
	Interval *metav1.Duration `json:"interval,omitempty"`
}

// SharedReads lets equal gets and lists share a response: those with the same path, query and headers. Each request is authorized before it
// gets one. Requests for a resource version and conditional requests are always sent, and watches unless watches is set.
type SharedReads struct {
	// maxAge is how old a response may be, up to 5m. With 0s, a response is shared only by requests that come before it is complete.
	MaxAge metav1.Duration `json:"maxAge"`

	// callers are those who share a response. Say All only if the responses of the backend do not depend on who asks: it is asked as one
	// of them, and its own authorization is not asked about the others. Default Same.
	// +optional
	Callers Callers `json:"callers,omitempty"`

	// watches lets one watch of the backend feed all clients that watch the same collection with the same selectors. It needs callers: All. The
	// backend is asked as the front door itself, and each client is authorized before it is fed. Watches in Table form, and those whose
	// resource version the shared watch does not have, are sent. Default false: each watch is sent.
	// +optional
	Watches bool `json:"watches,omitempty"`

	// staleIfError is for how long after maxAge a response is returned, with a warning, while the backend fails to answer. Up to 24h.
	// Default 0s: never.
	// +optional
	StaleIfError *metav1.Duration `json:"staleIfError,omitempty"`
}

// Callers are those whose requests share a response.
// +enum
// +kubebuilder:validation:Enum=Same;All
type Callers string

const (
	// CallersSame are requests with the same user, uid, groups and extra.
	CallersSame Callers = "Same"
	// CallersAll are all requests that are authorized.
	CallersAll Callers = "All"
)

// APIRouteMatch holds for a request if all of its fields do. An empty field holds for every request. Patterns are names in which
// "*" stands for any characters, and "?" for any one.
type APIRouteMatch struct {
	// access is the kind of request: Read is get, list and watch, Write is everything else.
	// +optional
	Access Access `json:"access,omitempty"`

	// resources are patterns of resources, in the plural. "pods" includes the subresources of pods, and "pods/log" is one of them.
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

	// metrics are patterns of names of metrics. Only for custom.metrics.k8s.io and external.metrics.k8s.io.
	// +optional
	// +listType=atomic
	Metrics []string `json:"metrics,omitempty"`

	// headers are headers that the request must have, for testers of a backend, for example.
	// +optional
	// +listType=atomic
	Headers []HeaderMatch `json:"headers,omitempty"`
}

// Access is a kind of request.
// +enum
// +kubebuilder:validation:Enum=Read;Write
type Access string

const (
	// AccessRead is get, list and watch.
	AccessRead Access = "Read"
	// AccessWrite is everything else.
	AccessWrite Access = "Write"
)

// HeaderMatch holds for requests that have a header with this value.
type HeaderMatch struct {
	// name is the name of the header, in any case.
	Name string `json:"name"`
	// value is the value of the header, exactly.
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

// APIRouteStatus is what was observed.
type APIRouteStatus struct {
	// conditions are those of the APIRoute as a whole: Accepted and Available.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// backends has the condition Available of each backend.
	// +optional
	// +listType=map
	// +listMapKey=name
	Backends []NamedConditions `json:"backends,omitempty"`

	// rules has the conditions Accepted, Available and RolledBack of each rule.
	// +optional
	// +listType=map
	// +listMapKey=name
	Rules []RuleStatus `json:"rules,omitempty"`
}

// RuleStatus is what was observed of a rule.
type RuleStatus struct {
	// name is the name of the rule.
	Name string `json:"name"`
	// conditions are its conditions.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// rolledBack are the names of the backends whose requests go to the first one of backendRefs, while the condition RolledBack is True for
	// the generation of the APIRoute.
	// +optional
	// +listType=set
	RolledBack []string `json:"rolledBack,omitempty"`
}

// NamedConditions are the conditions of a backend.
type NamedConditions struct {
	// name is the name of the backend.
	Name string `json:"name"`
	// conditions are its conditions.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Conditions of an APIRoute, its backends and its rules.
//
//reference:conditions Conditions of an APIRoute, its backends and its rules
const (
	// ConditionAccepted is True when the APIRoute, or a rule, is in effect. It is False for an APIRoute without an APIService that
	// has a Service, and for a rule that matches no request.
	ConditionAccepted = "Accepted"
	// ConditionAvailable is True for a backend that some replica reaches; for a rule when all of its requests can be served; for the
	// APIRoute when all of its backends are available. The reasons of a backend are those of the condition Available of an
	// APIService.
	ConditionAvailable = "Available"
	// ConditionRolledBack is True for a rule while the requests of a backend go to the first one of backendRefs, because too many failed. It
	// holds for the generation that it says, so that a change of the spec tries the backend again. Otherwise there is none.
	ConditionRolledBack = "RolledBack"
)

// Reasons of these conditions.
//
//reference:conditions Reasons of the conditions of an APIRoute
const (
	// ReasonAccepted is an APIRoute, or a rule, in effect.
	ReasonAccepted = "Accepted"
	// ReasonNoAPIService is an APIRoute without an APIService of its name.
	ReasonNoAPIService = "NoAPIService"
	// ReasonLocalAPIService is an APIRoute for a group-version that the front door serves itself.
	ReasonLocalAPIService = "LocalAPIService"
	// ReasonInvalid is an APIRoute that was stored before it was found invalid. It has no effect.
	ReasonInvalid = "Invalid"
	// ReasonNeverMatches is a rule all of whose requests an earlier rule takes.
	ReasonNeverMatches = "NeverMatches"
	// ReasonBackendsAvailable is an APIRoute, or a rule, whose backends are available.
	ReasonBackendsAvailable = "BackendsAvailable"
	// ReasonBackendsUnavailable is an APIRoute, or a rule, some of whose backends are not available. The message names them.
	ReasonBackendsUnavailable = "BackendsUnavailable"
	// ReasonFallback is a rule whose backends are not all available, but whose fallback is.
	ReasonFallback = "Fallback"
	// ReasonNoCustomResources is a backend of custom resources while no CustomResourceDefinition of the group serves the version.
	ReasonNoCustomResources = "NoCustomResources"
	// ReasonCustomResources is a backend of custom resources that serves some.
	ReasonCustomResources = "CustomResources"
	// ReasonErrorRate is a rule of which a backend failed more requests than rollback allows. The message names it, with the numbers.
	ReasonErrorRate = "ErrorRate"
)
