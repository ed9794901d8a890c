// Package drill is scripted failure with an expectation: what an extension server's bad day costs its clients, and what it
// must not cost anybody else, rehearsed against this front door or any other API server.
//
// A Drill (drill.go) brings a namespace, two extension servers of its own (package faulty), and their APIServices: the
// subject, which fails, and the bystander, which does not (stage.go). Traffic runs before, during and after (traffic.go,
// watching.go); every request and every change of the Available condition is written down (history.go). What is expected
// is judged over that history alone, by pure functions (expect.go), so that a wrong history can be shown to fail. Whatever
// happens, also when the drill is interrupted, what it made is taken away again, and what could not be is told (clean.go).
//
// The drills themselves are in the files called drills_*.go, one for each kind of trouble; catalogue.go lists them.
package drill
