// Package apiservice determines which backend serves each group-version and whether it is available: routing table,
// endpoint resolution, probes, verdicts, status and auto-registration.
//
// An APIService names a Service; the Service and its EndpointSlices determine the endpoints of the backend (resolve.go).
// One monitor for each backend requests its discovery document, like kube-aggregator does (monitor.go, probe.go), and
// cancels the request early if the backend does not answer its clients either. Resolution and probes together determine
// this replica's verdict, the Available condition (verdict.go). The verdicts on all group-versions form one immutable
// routetable.Table, which alone determines how requests are routed. If replicas disagree about a backend, each routes by
// its local verdict.
//
// The status of an APIService is for users and controllers, and is never read back for routing. Each replica publishes its
// verdicts. The leading replica folds them into one condition (replicas.go), delays a change to unavailable until it has
// lasted, writes changes (status.go) and records Events (events.go). A single replica writes its verdict immediately. The
// verdicts also determine, if enabled, whether a replica should be not ready because it does not reach backends that the
// other replicas reach (readiness.go).
//
// One goroutine, the Controller's loop (reconcile.go), turns events into tables. It reads only caches, so that it never
// blocks. Probes, status writes, Events and registration run in separate goroutines, so that a hung backend delays only its
// clients.
package apiservice
