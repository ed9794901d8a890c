// Package authz is who decides whether a request may be made, in what order: RBAC, webhooks, everything, nothing.
//
// Each authorizer allows, denies or has no opinion, and the first that has one decides. The group system:masters is let
// through before any is asked, so that an administrator gets in when rules or webhooks are broken. The order comes from
// flags or from an AuthorizationConfiguration that is followed: a good edit takes effect, a bad one leaves the
// order as it was and says so.
//
// # What is trusted
//
// A webhook, to say who may do what; so it must prove its name by TLS. It is not trusted to answer, or to answer
// briefly: a call has a deadline that includes every retry, calls under way are bounded so that a hung webhook cannot
// take every seat of the server, an answer has a size, and a redirect is not followed (attack row C13). What clients are
// told of a failure names the webhook and never its address or its words.
//
// # What is promised to the next room
//
// A decision that failed is never an allowance: it is an error with no opinion or with a denial, as the webhook's
// failurePolicy says, and only an authorizer that comes later may still allow.
package authz
