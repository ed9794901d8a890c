// Package server is the listener, the chain of filters, the router, health checks and drain.
//
// # One request, in numbered steps
//
//  1. The listener accepts TLS; a client certificate is asked for and verified later.
//  2. The chain (chain.go) authenticates and authorises: a slice of named filters in the order a request meets them.
//  3. The router (router.go) asks one question of one snapshot: who serves this group-version?
//  4. The answer is the local groups, one backend, discovery, OpenAPI, or a Status that says why there is none.
//
// Nothing falls through to a next delegate, and nothing waits for a backend other than the one that was routed to.
package server
