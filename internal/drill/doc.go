// Package drill runs scripted failures of extension servers with expectations: what a failure costs the clients of that
// server, and that it costs no others, against this front door or any other API server.
//
// A Drill (drill.go) brings a namespace, two extension servers of its own (package faulty), and their APIServices: the
// subject, which fails, and the bystander, which does not (stage.go). Traffic runs before, during and after (traffic.go,
// watching.go); every request and every change of the Available condition is recorded (history.go). What is expected
// is judged over that history alone, by pure functions (expect.go), so that a wrong history can be shown to fail. A drill
// deletes what it created, also when it is interrupted, and reports what it could not delete (setup.go).
//
// The drills themselves are in the files called drills_*.go, one for each kind of failure; All lists them.
package drill
