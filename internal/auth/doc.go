// Package auth documents authentication, authorization and delegated review. It contains no code. Its packages depend
// on each other in this order:
//
//	ttlcache        a cache with limited size and time to live
//	authn           authentication of requests: certificates, front proxies, bearer tokens, anonymous
//	serviceaccount  service account tokens: issuing, verification, checks against live objects
//	bootstraptoken  tokens with which new nodes request certificates
//	oidc            tokens of OpenID Connect issuers
//	tokenwebhook    tokens verified by a TokenReview webhook
//	rbac            decisions by roles and bindings, and their explanation
//	nodes           decisions about requests of nodes, by the objects related to each node
//	authz           the configured authorizers in order: RBAC, nodes, webhooks, AlwaysAllow, AlwaysDeny
//	delegated       authentication and authorization for extension servers, by calls to the front door
//	authtest        certificates and tokens for tests
//
// # Trust
//
// The following sources are trusted, and nothing that a client can write:
//
//   - The client CA, to name a user (common name) and groups (organizations) in a certificate for client
//     authentication.
//   - The front-proxy CA, to certify that the holder of a certificate forwards requests for its clients. Identity
//     headers are read only from such a client. The certificate itself never identifies a user (attack row A31).
//   - The service account keys, to prove that this server issued a token. They do not prove that the token is still
//     valid: the service account and the bound object are looked up by UID every time (B5).
//   - The token file, for the tokens it lists.
//   - An issuer configured by the operator, over TLS, to publish its keys. The configuration defines how its claims
//     map to a user.
//   - The token review webhook, over TLS, for any token that no earlier authenticator recognized. It is last in the
//     chain, because it receives the token itself.
//
// The client CA and the front-proxy CA must be disjoint unless the proxies are listed by name. Otherwise every client
// certificate could assert any identity (A12, NCC-F9W). Shared certificates, shared keys and cross-signatures are
// checked at the start and after every reload.
//
// # Multiple credentials
//
// A request may have several credentials: a front-proxied identity, a client certificate, and a bearer token (in the
// Authorization header or a WebSocket subprotocol). All of them must be valid, or the request is refused. An invalid
// credential is a mistake or an attack, and a fallback to another identity, or to anonymous, would hide both. If all
// are valid, the first in this order is the identity. Identities are never merged: the groups of one credential are
// not added to another (B11). Only a request without credentials can be anonymous.
//
// # Repeated checks
//
// The TLS handshake requests a certificate. The certificate is verified here, for every request, against the current
// authorities and the current time. So a long-lived connection loses its rights when its certificate expires, and a
// replaced CA takes effect without a new handshake (A15, B10). The result of verifying a token's signature may be
// cached for a few seconds, because the bytes do not change. Its times and bound objects are never cached. A user
// derived from an issuer's claims or a webhook's response is cached for seconds, but not beyond the token's expiry.
//
// The algorithm of a token is determined by the key that its id selects, and the token's header must match (B1). The
// issuer is read before the signature is verified, to select the verifier, and compared again afterwards (B6).
//
// # Guarantees
//
// A returned user.Info has a name, is in system:authenticated unless it is anonymous, and is derived from exactly one
// credential. The Authorization header, the WebSocket token and all identity headers, in any spelling, have been
// removed from the request, so that no later handler can use or leak them. A decision reads one immutable index that
// is built from objects accepted by the API. Errors, log lines and metric labels of these packages never contain a
// token or a part of one.
package auth
