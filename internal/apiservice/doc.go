// Package apiservice answers who serves each group-version and whether it is up: table, probe, verdict, condition,
// auto-registration.
//
// An APIService names a Service; the Service and its EndpointSlices say where the backend is (resolve.go); a monitor
// per backend asks it, as the incumbent does, for its discovery document (monitor.go, probe.go), and does not wait for
// long while its clients hear nothing either (suspicion.go); what was resolved and what was heard fold into one condition
// (verdict.go). The conditions of all group-versions are one immutable Table (table.go), and the request river reads
// nothing else: when replicas disagree about a backend, each routes by what it sees itself.
//
// The status of an APIService is for people and controllers to see, and is never read back for routing. Each replica
// tells the others its verdicts (peers.go, confer.go); one of them folds all verdicts into one (council.go, fold.go),
// holds bad news back until they have lasted (damper.go), writes what changed (status.go) and tells of backends that went
// or returned in Events (herald.go). A replica that is alone writes its own verdict at once.
//
// One goroutine, Controller's loop, turns events into tables. It only reads caches, so that nothing it does takes long;
// whatever touches the network (probes, status writes, Events, registration) has goroutines of its own, so that a hung backend
// delays nobody but its own clients.
package apiservice
