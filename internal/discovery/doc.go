// Package discovery serves the merged discovery documents: /api, /apis and /apis/<group>.
//
// Clients act on these documents: a namespace controller that finds no resources in a group-version finishes the namespace
// and leaves orphans behind, and a garbage collector that does not find a kind deletes its dependents. So the documents
// must be right. Every client reads them first, so they must be available at once.
//
// Requests only read a Snapshot, whose bytes are made when something changes (snapshot.go, documents.go); backends are
// polled in the background (merger.go, fetch.go, package remote). What a backend last served outlives the backend and this
// process. A backend's answer is not always believed: freshness.go has the rules, without I/O.
package discovery
