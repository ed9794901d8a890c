package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Cluster is an existing cluster that the front door serves below /clusters/NAME, and under its host names. Users need the right to
// use clusters/proxy of clusters.portico.dev with the verb of their request. The cluster's API servers authorize the request again.
type Cluster struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is standard object metadata. The name is a DNS label.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines how the cluster is reached, and who may do what there.
	Spec ClusterSpec `json:"spec"`
	// status is the observed state of the cluster.
	// +optional
	Status ClusterStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ClusterList is a list of Clusters.
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the Clusters.
	Items []Cluster `json:"items"`
}

// ClusterSpec defines how a cluster is reached, and who may do what there.
type ClusterSpec struct {
	// hosts are the host names of the front door by which clients reach the cluster. The serving certificate of the front
	// door must be valid for them.
	// +optional
	// +listType=set
	Hosts []string `json:"hosts,omitempty"`

	// server contains the addresses of the API servers, and how their certificates are verified.
	Server ClusterServer `json:"server"`

	// credentials are those of the front door at the API servers.
	// +optional
	Credentials ClusterCredentials `json:"credentials,omitempty"`

	// identity defines how the API servers learn who the user is.
	// +optional
	Identity ClusterIdentity `json:"identity,omitempty"`

	// apiServices are the names of APIServices of the front door, such as "v1beta1.metrics.k8s.io". Requests for their
	// group-versions go to the extension servers of the front door, and not to the cluster, after the cluster has
	// authorized them. The extra of their users contains the name of the Cluster in the key portico.dev/cluster.
	// +optional
	// +listType=set
	APIServices []string `json:"apiServices,omitempty"`

	// limits are those of requests to the cluster.
	// +optional
	Limits ClusterLimits `json:"limits,omitempty"`

	// maintenance refuses requests while somebody works on the cluster.
	// +optional
	Maintenance *ClusterMaintenance `json:"maintenance,omitempty"`

	// shared lets equal reads of chosen resources share a response, and watches one watch of the cluster. Each client is
	// authorized by the cluster first. If it is not set, each request is sent to the API servers.
	// +optional
	// +listType=atomic
	Shared []SharedResources `json:"shared,omitempty"`
}

// SharedResources lets equal gets and lists of resources, with the same path, query and headers, share a response. The front
// door sends the request as its own account, which needs the rights. Requests for a resource version, conditional requests
// and requests of users that the cluster does not authorize are sent as the user.
type SharedResources struct {
	// resources are resources such as "pods" and "deployments.apps". The first item of shared with a resource applies.
	// +listType=set
	Resources []string `json:"resources"`

	// maxAge is the maximum age of a shared response, up to 5m. With 0s, only requests that arrive before a response
	// is complete share it.
	MaxAge metav1.Duration `json:"maxAge"`

	// staleIfError is how long after maxAge a response is returned, with a warning, while the API servers fail to respond
	// but still authorize the user. Up to 24h. Default 0s: never.
	// +optional
	StaleIfError *metav1.Duration `json:"staleIfError,omitempty"`

	// watches lets one watch of the cluster serve all clients that watch the same collection with the same selectors, in
	// JSON. Default false: each watch is sent to the API servers.
	// +optional
	Watches bool `json:"watches,omitempty"`
}

// ClusterServer contains the addresses of the API servers of a cluster.
type ClusterServer struct {
	// endpoints are the addresses of all API servers, "HOST:PORT". Each request goes to one that is ready, to the one with
	// the fewest requests in flight.
	// +listType=set
	Endpoints []string `json:"endpoints"`

	// caBundle contains the PEM certificates that sign the serving certificates of the API servers. If it is empty, the
	// certificates that the system trusts are used.
	// +optional
	CABundle []byte `json:"caBundle,omitempty"`

	// serverName is the name in the serving certificates. Default "kubernetes.default.svc", which the certificates of API
	// servers contain.
	// +optional
	ServerName string `json:"serverName,omitempty"`

	// insecureSkipTLSVerify accepts any server at the addresses. Use caBundle instead.
	// +optional
	InsecureSkipTLSVerify bool `json:"insecureSkipTLSVerify,omitempty"`

	// tunnel is the name of the tunnel through which the API servers are reached, for example one of konnectivity. It is a
	// DNS label. The directory of --cluster-tunnels-dir has a file NAME.yaml for each tunnel.
	// +optional
	Tunnel string `json:"tunnel,omitempty"`
}

// ClusterCredentials are the credentials of the front door at the API servers. Without any, requests of users are refused.
type ClusterCredentials struct {
	// secret contains the credentials: a token in the key "token", or a certificate and its key in "tls.crt" and "tls.key".
	// +optional
	Secret *SecretReference `json:"secret,omitempty"`
}

// SecretReference refers to a Secret.
type SecretReference struct {
	// namespace is the namespace of the Secret.
	Namespace string `json:"namespace"`
	// name is the name of the Secret.
	Name string `json:"name"`
}

// IdentityMode is how the API servers of a cluster learn who the user is.
type IdentityMode string

const (
	// Impersonate sends the user in Impersonate headers. The credentials need the right to impersonate.
	Impersonate IdentityMode = "Impersonate"
	// FrontProxy sends the user in X-Remote headers. The API servers must trust the certificate of the credentials as one of
	// a front proxy (--requestheader-client-ca-file).
	FrontProxy IdentityMode = "FrontProxy"
)

// TokenPolicy selects the bearer tokens that are sent to the cluster unchanged.
type TokenPolicy string

const (
	// NoTokens are sent: the front door authenticates all users.
	NoTokens TokenPolicy = "None"
	// ServiceAccountTokens of other issuers than the front door are sent.
	ServiceAccountTokens TokenPolicy = "ServiceAccounts"
	// AllTokens are sent: the cluster authenticates the users of all bearer tokens.
	AllTokens TokenPolicy = "All"
)

// ClusterIdentity defines how the API servers of a cluster learn who the user is. Users and groups whose names begin with
// "system:" have rights in every cluster, so those of the front door are not sent: such a user is refused, unless it is
// system:anonymous, and such groups are left out, except system:authenticated and system:unauthenticated.
type ClusterIdentity struct {
	// mode is how the user is sent. Default Impersonate.
	// +optional
	Mode IdentityMode `json:"mode,omitempty"`

	// userPrefix is put before the names of users in the cluster.
	// +optional
	UserPrefix string `json:"userPrefix,omitempty"`

	// groupPrefix is put before the names of groups in the cluster.
	// +optional
	GroupPrefix string `json:"groupPrefix,omitempty"`

	// systemGroups are groups with the prefix "system:" that are sent nevertheless, such as system:masters.
	// +optional
	// +listType=set
	SystemGroups []string `json:"systemGroups,omitempty"`

	// tokens selects the bearer tokens that are sent to the cluster unchanged, after the cluster has accepted them in a
	// TokenReview. Their users need no right at the front door. Default ServiceAccounts.
	// +optional
	Tokens TokenPolicy `json:"tokens,omitempty"`
}

// ClusterLimits limits the requests to a cluster.
type ClusterLimits struct {
	// maxRequestsInFlight limits the requests that are in progress at the cluster, without watches and other long-running
	// requests. Users share it. Default 400.
	// +optional
	MaxRequestsInFlight *int32 `json:"maxRequestsInFlight,omitempty"`

	// rates limit how often users make requests. All rules that match a request apply.
	// +optional
	// +listType=map
	// +listMapKey=name
	Rates []RateLimit `json:"rates,omitempty"`
}

// RateLimit limits how often users make requests. An empty list of conditions matches every request.
type RateLimit struct {
	// name identifies the limit in messages and metrics. It is a DNS label.
	Name string `json:"name"`

	// requestsPerSecond is how many requests each user may make per second, on average.
	RequestsPerSecond int32 `json:"requestsPerSecond"`

	// burst is how many requests a user may make at once after a pause. Default: requestsPerSecond.
	// +optional
	Burst *int32 `json:"burst,omitempty"`

	// users are the names of users at the front door.
	// +optional
	// +listType=set
	Users []string `json:"users,omitempty"`

	// groups are the names of groups at the front door.
	// +optional
	// +listType=set
	Groups []string `json:"groups,omitempty"`

	// verbs are verbs such as list.
	// +optional
	// +listType=set
	Verbs []string `json:"verbs,omitempty"`

	// resources are resources such as "pods", "pods/exec" and "deployments.apps".
	// +optional
	// +listType=set
	Resources []string `json:"resources,omitempty"`

	// namespaces are the namespaces of the requests.
	// +optional
	// +listType=set
	Namespaces []string `json:"namespaces,omitempty"`
}

// MaintenanceMode is what is refused during maintenance.
type MaintenanceMode string

const (
	// ReadOnly refuses writes, upgraded connections among them.
	ReadOnly MaintenanceMode = "ReadOnly"
	// Closed refuses all requests.
	Closed MaintenanceMode = "Closed"
)

// ClusterMaintenance refuses requests with 503 and Retry-After while somebody works on the cluster.
type ClusterMaintenance struct {
	// mode is what is refused: ReadOnly or Closed.
	Mode MaintenanceMode `json:"mode"`

	// message tells users why, and until when.
	// +optional
	Message string `json:"message,omitempty"`

	// exemptGroups are the groups at the front door whose requests are served nevertheless.
	// +optional
	// +listType=set
	ExemptGroups []string `json:"exemptGroups,omitempty"`
}

// Conditions of a Cluster.
//
//reference:conditions Conditions of a Cluster
const (
	// ConditionAvailable is True if an API server of the cluster is ready, and the credentials can be used.
	ConditionAvailable = "Available"
	// ConditionPermitted is True if the credentials have the rights that the front door needs in the cluster. The message names
	// missing rights.
	ConditionPermitted = "Permitted"
)

// Reasons of Available.
//
//reference:conditions Reasons of the conditions of a Cluster
const (
	// ReasonReady is set if an API server of the cluster is ready.
	ReasonReady = "Ready"
	// ReasonNotProbed is set until an API server of the cluster has been probed.
	ReasonNotProbed = "NotProbed"
	// ReasonNoReadyAPIServer is set while no API server of the cluster is ready. The message contains the cause for each of them. If
	// the tunnel failed, its cause is the reason, such as TunnelRefused.
	ReasonNoReadyAPIServer = "NoReadyAPIServer"
	// ReasonInvalidServer is set if spec.server cannot be used.
	ReasonInvalidServer = "InvalidServer"
	// ReasonInvalidCredentials is set if the Secret is missing, or its content cannot be used.
	ReasonInvalidCredentials = "InvalidCredentials"
)

// Reasons of Permitted.
//
//reference:conditions Reasons of the conditions of a Cluster
const (
	// ReasonRightsGranted is set if the credentials have the required rights.
	ReasonRightsGranted = "RightsGranted"
	// ReasonMissingRights is set if the credentials lack rights.
	ReasonMissingRights = "MissingRights"
	// ReasonCheckFailed is set if the cluster did not tell whether the credentials have the rights.
	ReasonCheckFailed = "CheckFailed"
	// ReasonClusterUnavailable is set if the rights are unknown because no API server is available.
	ReasonClusterUnavailable = "ClusterUnavailable"
)

// ClusterStatus is the observed state of a Cluster.
type ClusterStatus struct {
	// conditions are Available and Permitted.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// endpoints are the states of the API servers.
	// +optional
	// +listType=map
	// +listMapKey=address
	Endpoints []EndpointStatus `json:"endpoints,omitempty"`

	// version is the version of an API server that is ready, such as "v1.37.1".
	// +optional
	Version string `json:"version,omitempty"`
}

// EndpointStatus is the state of one API server.
type EndpointStatus struct {
	// address is the address in the spec.
	Address string `json:"address"`

	// ready is true if the API server gets requests.
	Ready bool `json:"ready"`

	// message explains why it is not ready.
	// +optional
	Message string `json:"message,omitempty"`
}
