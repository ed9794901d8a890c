// Package oidc recognises the tokens of OpenID Connect issuers.
//
// Issuers come from kube-apiserver's --oidc-* flags or from an AuthenticationConfiguration file, which is followed. What
// claims mean (mappings, rules, CEL) is the business of k8s.io/apiserver's library, so that a configuration that works
// there works here. Fetching keys and verifying signatures is ours:
//
//   - An issuer is asked in the background, with deadlines. One that is dead or hangs holds up nothing but its own
//     tokens, and once its keys are known not even those.
//   - A token never causes more than one look at its issuer every few seconds, whatever key ids are made up in it, and
//     never one at any other address: keys and references in headers (jwk, jku, x5u) and in claims (distributed claims)
//     are not followed.
//   - The algorithm must be on the operator's list and must fit the key. A public key is never a secret for HMAC.
//   - Keys that an issuer no longer publishes are forgotten at the next refresh.
package oidc
