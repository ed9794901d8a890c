// Package auth is authentication, authorization and delegated review. It holds no code; its packages are built on one
// another in this order:
//
//	ttlcache     answers that are remembered for a bounded time in a bounded space
//	authn        authentication of requests: certificates, front proxies, bearer tokens, anonymous
//	serviceaccount  service account tokens: issued, verified, checked against live objects
//	bootstraptoken  tokens by which new nodes ask for certificates
//	oidc         tokens of OpenID Connect issuers
//	tokenwebhook tokens that a TokenReview webhook verifies
//	rbac         decisions by roles and bindings, and their explanation for a person
//	nodes        decisions about requests of nodes, by what belongs to each
//	authz        the configured authorizers in order: RBAC, nodes, webhooks, everything, nothing
//	delegated    authentication and authorization for an extension server, which asks the front door
//	authtest     certificates and tokens for tests
//
// # What is trusted
//
// These, and nothing that a client can write:
//
//   - the client CA, to name a user (common name) and groups (organizations) in a certificate for client
//     authentication;
//   - the front-proxy CA, to say that the holder of a certificate relays for others. It makes identity headers worth
//     reading and is never itself a user (attack row A31);
//   - the service account keys, to say that we wrote a token. They do not say that it is still valid: the service account
//     and the object it is bound to are looked up by UID every time (B5);
//   - the token file, for the tokens that it lists;
//   - an issuer that the operator configured, over TLS, to say which keys are its own. What its claims may make of a user
//     is the configuration's to say;
//   - the token review webhook, over TLS, for any token that no authenticator before it knew. It is asked last because it
//     is shown what it is asked about.
//
// The client CA and the front-proxy CA must have nothing in common unless the proxies are listed by name. Otherwise
// every client certificate could assert any identity (A12, NCC-F9W). Shared certificates, shared keys and
// cross-signatures are all checked for, at start and after every reload.
//
// # Which credential counts
//
// A request may have several: a front-proxied identity, a client certificate, a bearer token (in the Authorization
// header or a websocket subprotocol). Every one that is presented must be valid, or the request is refused: a bad
// credential is a mistake or an attack, and falling back to another identity, or to anonymous, would hide both. When
// all are valid the first in that order is the identity. Identities are never joined: the groups of one credential
// never enlarge another (B11). Only a request without credentials can be anonymous.
//
// # What is checked twice
//
// The TLS handshake asks for a certificate; it is verified here, on every request, against the authorities and the
// clock of that moment. So an expired certificate ends a long-lived connection's rights, and a CA that was replaced
// takes effect without a new handshake (A15, B10). A token's signature may be cached for a few seconds, because bytes
// do not change; its times and its bound objects are never cached. What an issuer's claims or a webhook made of a token
// is cached for seconds, and not beyond the token's own expiry.
//
// The algorithm of a token comes from the key that its id names; the token's header must agree (B1). The issuer is read
// before the signature to learn whether a token is ours at all, and compared again afterwards (B6).
//
// # What is promised to callers
//
// A user.Info that has a name, that has system:authenticated unless it is anonymous, and that came from exactly one
// credential. A request from which the Authorization header, the websocket token and every identity header, in any
// spelling, have been removed, so that no later handler can mistake them for facts or leak them. A decision that read
// one immutable index, made of objects that the API has accepted. And no error, log line or metric label here holds a
// token or a part of one.
package auth
