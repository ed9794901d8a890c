// Package discovery gives one merged answer to "what can I ask for?".
//
// Clients decide what exists by this answer, and some of them delete by it: a namespace controller that believes that a
// group-version holds nothing finishes the namespace and leaves orphans behind; a garbage collector that believes that
// a kind is gone deletes what it owned. So the answer must never lie, and since it is the first thing that every client
// asks for, it must never wait.
//
// It never waits because requests only read a Snapshot, whose bytes were made when something changed (snapshot.go,
// document.go); backends are asked in the background (fetch.go, package remote). It does not lie because what a backend
// last said outlives the backend, and the front door (keeper.go), and because a backend that answers is not believed in
// everything: freshness.go holds the rules, in one place and without I/O.
package discovery
