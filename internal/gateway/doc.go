// Package gateway is the front door for extension servers of a cluster whose API server cannot be changed: it stands between an
// unmodified kube-apiserver and unmodified extension servers.
//
// # What is trusted
//
// The API server, as the kubeconfig or the service account says it is. It publishes which front proxies count, in ConfigMap
// kube-system/extension-apiserver-authentication. Identity headers are believed from a connection with the certificate of one of these,
// and from no other; no other credential identifies anybody. The gateway's own authority, which is in that ConfigMap too, is left out: a
// request of the gateway to itself is nobody's.
//
// # What is checked twice
//
// Nothing is authorized here. The API server has authorized a request before it passes it on, and the extension server does so again,
// because the gateway passes on who the user is. URLs that can be read in two ways are rejected.
//
// # What is promised
//
// To the API server: discovery and OpenAPI are answered from memory, with the last-known documents of a server that is dead, and never
// with fewer resources than are known. What is not known, or not adopted, is 503 and never 404. An unavailable server is answered for at
// once, with a Status that names the cause.
//
// To extension servers: identity headers come over a connection with a certificate of the gateway's front-proxy authority. That
// authority signs nothing else, is replaced with overlap (keys.go), and is published while an APIService needs it (upkeep.go).
//
// To the cluster: nothing is written but the ConfigMap above, by addition; the gateway's own conditions and the caBundle of its own
// certificate, in adopted APIServices; and objects of the gateway's namespace. Whatever is written is written when it changes, by one
// replica.
//
// The parts are the front door's: view.go shows adopted APIServices to the routing table as they would be without a gateway.
package gateway
