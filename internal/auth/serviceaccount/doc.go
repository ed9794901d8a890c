// Package serviceaccount issues service account tokens, and verifies them against live objects.
//
// A token is a JWT with Kubernetes' claims. The signature proves that this server issued it. To check that it is
// still valid, the live service account and the bound pod, secret or node are looked up by UID on each use. Only the
// result for the immutable part, the signature, is cached for a few seconds.
//
// Tokens that kube-controller-manager wrote into Secrets are accepted but not issued; see legacy.go. They do not
// expire. On each use the Secret must still contain the token.
package serviceaccount
