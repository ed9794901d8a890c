// Package delegated authenticates and authorises requests to an extension server by asking the front door.
//
// # What is trusted
//
// The front door, as the kubeconfig says it is. It publishes whose certificates count, and under which header names it
// states identities, in the ConfigMap kube-system/extension-apiserver-authentication; it verifies bearer tokens
// (TokenReview) and decides (SubjectAccessReview). Identity headers are trusted from a connection whose client
// certificate chains to the published front-proxy CA and has an allowed name, and from no other.
//
// # What is checked twice
//
// Every request is authorised here although the front door has authorised it already: its decision was about the front
// door, and this server may be reached without it. Certificates are verified per request, as in the front door.
//
// # What is promised to callers
//
// It fails closed. No request is authenticated before the ConfigMap has been read once; a ConfigMap that is dangerous
// (front-proxy CA and client CA overlap and any name is allowed) or damaged is refused, at start by not starting, later
// by keeping the last good one. Headers that claim an identity without the certificate to go with it never pass as
// anonymous. When the front door cannot be asked, the result is an error.
//
// The package imports leaf packages only (no typed clientset, no informers), because every extension server pays for
// what it links.
package delegated
