// Package apiservice answers who serves each group-version and whether it is available: routing table, endpoint
// resolution, probes, verdicts, status and auto-registration.
//
// An APIService names a Service; the Service and its EndpointSlices give the endpoints of the backend (resolve.go). One
// monitor for each backend requests its discovery document, as kube-aggregator does (monitor.go, probe.go), and gives up
// early on a backend that does not answer its clients either. Resolution and probes together give this replica's verdict,
// the Available condition (verdict.go). The verdicts on all group-versions form one immutable routetable.Table. Requests
// are routed by that table and nothing else: when replicas disagree about a backend, each routes by its own verdict.
//
// The status of an APIService is for people and controllers, and is never read back for routing. Each replica publishes
// its verdicts; the leading one folds all of them into one condition (replicas.go), holds a change to unavailable back
// until it has lasted, writes what changed (status.go) and records Events (events.go). A single replica writes its own
// verdict at once. The same verdicts decide, where that is asked for, whether a replica should be not ready because it does
// not reach what the others reach (readiness.go).
//
// One goroutine, the Controller's loop (reconcile.go), turns events into tables. It reads only caches, so that it never
// blocks. Probes, status writes, Events and registration have goroutines of their own, so that a hung backend delays
// nobody but its own clients.
package apiservice
