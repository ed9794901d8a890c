// Package serviceaccount is service account tokens: issued, verified, checked against live objects.
//
// A token is a JWT with the claims of Kubernetes. Its signature says that we wrote it; whether it still holds is asked
// of the live service account, and of the pod, secret or node it is bound to, by UID, each time it is presented. Only
// the part that cannot change, the signature over these bytes, is remembered for a few seconds.
//
// Tokens that a kube-controller-manager wrote into Secrets are recognised too, and not issued: see legacy.go. They have no
// end; what is asked each time is whether their Secret still has them.
package serviceaccount
