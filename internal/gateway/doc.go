// Package gateway is the front door for extension servers of a cluster with an API server that cannot be changed: it
// runs between an unmodified kube-apiserver and unmodified extension servers.
//
// # Trust
//
// The gateway trusts the API server of the kubeconfig or the service account. The API server publishes the trusted
// front proxies in ConfigMap kube-system/extension-apiserver-authentication. The gateway accepts identity headers
// only on a connection with a certificate of one of these. No other credential identifies a client. The gateway's own
// authority, which is in that ConfigMap too, is excluded: a request of the gateway to itself has no user.
//
// # Authorization
//
// The gateway does not authorize requests. The API server authorizes a request before it forwards it, and the
// extension server authorizes it again, because the gateway forwards the user. URLs with two interpretations are
// rejected.
//
// # Guarantees
//
// For the API server: discovery and OpenAPI are served from memory, with the last-known documents of an unavailable
// server, and never with fewer resources than are known. A group-version that is unknown or not adopted gets a 503,
// never a 404. Requests for an unavailable server get an immediate response, with a Status that names the cause.
//
// For extension servers: identity headers are sent on a connection with a certificate of the gateway's front-proxy
// authority. That authority does not sign other certificates, is replaced with overlap (keys.go), and is published
// while an APIService needs it (upkeep.go).
//
// For the cluster: the gateway writes only to the ConfigMap above, by addition; to adopted APIServices, its
// conditions and the caBundle of its certificate; and to objects in its namespace. One replica writes an object, when
// the contents change.
//
// The gateway uses the parts of the front door. view.go shows adopted APIServices to the routing table as they would
// be without a gateway.
package gateway
