// Package fleet serves existing clusters behind a front door: objects of kind Cluster.
//
// # Requests
//
// Handler selects the cluster of a request by its host or by the path /clusters/NAME, which it removes. Then the request passes one of
// two chains, in which the cluster is a value of the context. The first is for users of the front door: it authenticates and audits
// them as always, and authorizes the verb of the request on clusters/proxy of clusters.portico.dev. The second is for bearer
// tokens that the cluster itself authenticates and authorizes. Both end at the cluster's API servers (package cluster), or at a
// response that users share, after the cluster has authorized the user (spec.shared).
//
// Requests for group-versions in spec.apiServices end at extension servers of the front door. The cluster authorizes them by a review
// (member.authorize), and the front door authorizes the user that the extension server sees.
//
// # State
//
// Fleet follows Clusters and their Secrets, and replaces the set of clusters as a whole. The leading replica writes their status.
//
// # Guarantees
//
// Requests for a cluster wait for no other cluster. Users do not learn which clusters exist unless they may use them. A user has
// no identity in a cluster that package identity does not derive from the identity at the front door. API servers get users by front-proxy
// headers only after a test has shown that they trust them. A Cluster that cannot be used is a 503, not a 404.
package fleet
