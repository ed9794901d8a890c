// Package delegated is both answers, who and may they, for an extension server, which asks the front door.
//
// # What is trusted
//
// The front door, as the kubeconfig says it is. It publishes whose certificates count, and under which header names it
// states identities, in the ConfigMap kube-system/extension-apiserver-authentication; it recognises bearer tokens
// (TokenReview) and decides (SubjectAccessReview). Identity headers are believed from a connection whose client
// certificate chains to the published front-proxy CA and bears an allowed name, and from no other.
//
// # What is checked twice
//
// Every request is authorised here although the front door has authorised it already: its answer was about the front
// door, and this server may be reached without it. Certificates are verified per request, as in the front door.
//
// # What is promised to the next room
//
// It fails closed. Nothing is authenticated before the ConfigMap has been read once; a ConfigMap that is dangerous
// (front-proxy CA and client CA overlap and any name is allowed) or damaged is refused, at start by not starting, later
// by keeping the last good one. Headers that claim an identity without the certificate to go with it never pass as
// anonymous. When the front door cannot be asked, the answer is an error and not a guess.
//
// The package stands on leaf packages (no typed clientset, no informers), because every extension server pays for what
// it links.
package delegated
