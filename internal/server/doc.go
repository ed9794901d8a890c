// Package server contains the listener, the chain of filters, the router, health checks and draining.
//
// # Path of a request
//
//  1. The listener accepts TLS and requests a client certificate, which is verified later.
//  2. The chain (chain.go) authenticates and authorizes. It is a slice of named filters in the order a request passes them.
//  3. The router (router.go) looks up the group-version in one snapshot.
//  4. The result is the local groups, one backend, discovery, OpenAPI, or a Status that explains the failure.
//
// A request never falls through to a delegate, and never waits for a backend other than the one it is routed to.
package server
