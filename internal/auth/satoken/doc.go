// Package satoken is service account tokens: issued, verified, checked against live objects.
//
// A token is a JWT with the claims of Kubernetes. Its signature says that we wrote it; whether it still holds is asked
// of the live service account, and of the pod, secret or node it is bound to, by UID, each time it is presented. Only
// the part that cannot change, the signature over these bytes, is remembered for a few seconds.
package satoken
