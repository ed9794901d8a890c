// Package drill injects scripted failures into extension servers, and into the path to the API servers of Clusters, and
// checks the effect on clients: the cost of a failure for clients of the failed server, and that it does not affect other
// clients. It works against this front door or any other API server.
//
// A Drill (drill.go) creates a namespace, two extension servers (package faulty) and their APIServices: the subject,
// which fails, and the bystander, which does not (stage.go). Traffic runs before, during and after the failure
// (traffic.go, watching.go). Every request and every change of the Available condition is recorded (history.go).
// Expectations are pure functions of that history (expect.go), so tests can show that a bad history fails. A drill
// deletes everything it created, even when it is interrupted, and reports the remaining objects (setup.go).
//
// In drills of Clusters, the subject and the bystander are Clusters instead, whose API servers are relays (clusters.go,
// relay.go).
//
// The drills are defined in the files drills_*.go, one for each kind of failure; All lists them.
package drill
