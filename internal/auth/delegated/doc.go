// Package delegated authenticates and authorizes requests to an extension server by calling the front door.
//
// # Trust
//
// The package trusts the front door that the kubeconfig identifies. The front door publishes its client CAs, its
// front-proxy CA and the names of identity headers in the ConfigMap kube-system/extension-apiserver-authentication.
// It verifies bearer tokens (TokenReview) and makes decisions (SubjectAccessReview). Identity headers are trusted
// only on a connection whose client certificate chains to the published front-proxy CA and has an allowed name.
//
// # Repeated checks
//
// Every request is authorized here although the front door has already authorized it. Its decision covered access to
// the front door, and this server may be reachable directly. Certificates are verified per request, as in the front
// door.
//
// # Guarantees
//
// The package fails closed. No request is authenticated before the ConfigMap has been read. A dangerous ConfigMap
// (the front-proxy CA and the client CA overlap and any name is allowed) or a damaged one is refused: at the start
// Run fails; later the last valid one stays in effect. A request with identity headers but without a front proxy's
// certificate is never treated as anonymous. If the front door cannot be reached, the result is an error.
//
// The package imports only leaf packages (no typed clientset, no informers) to keep extension servers small.
package delegated
