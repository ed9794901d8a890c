// Package tokenwebhook verifies tokens that no other authenticator recognizes with a TokenReview webhook of the
// operator.
//
// k8s.io/apiserver sends the requests and retries them. This package adds a deadline, so that a hung webhook delays
// only requests with otherwise unrecognized tokens, and for a limited time. It also limits the number of concurrent
// reviews, merges concurrent reviews of the same token, and caches results.
package tokenwebhook
