// Package oidc authenticates tokens of OpenID Connect issuers.
//
// Issuers are configured by kube-apiserver's --oidc-* flags or by an AuthenticationConfiguration file, which is
// reloaded when it changes. k8s.io/apiserver evaluates the claims (mappings, rules, CEL), so that kube-apiserver's
// configurations work unchanged. This package fetches keys and verifies signatures:
//
//   - Keys are fetched in the background, with deadlines. An unavailable issuer delays only its own tokens, and only
//     until its keys have been fetched once.
//   - A token causes at most one fetch from its issuer every few seconds, regardless of the key ids in tokens, and
//     never a fetch from another address: keys and references in headers (jwk, jku, x5u) and in claims (distributed
//     claims) are ignored.
//   - The algorithm must be in the operator's list and match the key type. A public key is never used as an HMAC
//     secret.
//   - Keys that an issuer no longer publishes are removed at the next refresh.
package oidc
