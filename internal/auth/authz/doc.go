// Package authz authorises requests: by RBAC, the Node authorizer, webhooks, AlwaysAllow or AlwaysDeny, in the configured order.
//
// Each authorizer allows, denies or has no opinion, and the first that has one decides. The group system:masters is
// allowed before any is asked, so that an administrator gets in when rules or webhooks are broken. The order comes from
// flags or from an AuthorizationConfiguration that is reloaded when it changes: a valid edit takes effect, an invalid
// one leaves the order as it was and is reported.
//
// # What is trusted
//
// A webhook, to decide who may do what; so it must prove its name by TLS. It is not trusted to answer, or to answer
// with little: a call has a deadline that includes every retry, calls in flight are bounded so that a hung webhook
// cannot take every seat of the server, a response has a maximum size, and a redirect is not followed (attack row C13).
// What clients are told of a failure names the webhook and never its address or its words.
//
// # What is promised to callers
//
// A decision that failed is never an allowance: it is an error with no opinion or with a denial, as the webhook's
// failurePolicy says, and only a later authorizer may still allow.
package authz
