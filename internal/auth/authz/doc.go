// Package authz authorizes requests with RBAC, the Node authorizer, webhooks, AlwaysAllow or AlwaysDeny, in the
// configured order.
//
// Each authorizer allows, denies or has no opinion, and the first opinion decides. The group system:masters is
// allowed before any authorizer runs, so that an administrator has access when rules or webhooks are broken. The
// order is set by flags or by an AuthorizationConfiguration file that is reloaded when it changes: a valid change
// takes effect; an invalid change is reported and the previous configuration stays in use.
//
// # Trust
//
// A webhook is trusted to make decisions, so its server certificate must be verified. It is not trusted to respond in
// time or with a small body: a call has a deadline that includes all retries, the number of calls in flight is
// limited so that a hung webhook cannot take every seat of the server, the response size is limited, and redirects
// are not followed (attack row C13). Errors returned to clients contain the name of the webhook, but not its address
// or response.
//
// # Guarantees
//
// A failed decision never allows a request. It is an error with no opinion or a denial, according to the webhook's
// failurePolicy, and only a later authorizer may still allow the request.
package authz
