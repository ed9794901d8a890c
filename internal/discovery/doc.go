// Package discovery serves the merged discovery documents: /api, /apis and /apis/<group>.
//
// Clients act on these documents. A namespace controller that finds no resources in a group-version finalizes the namespace
// and leaves orphans behind. A garbage collector that does not find a kind deletes its dependents. The documents must
// therefore be correct. Every client reads them first, so they must be available immediately.
//
// Requests only read a Snapshot. Its documents are encoded when something changes (snapshot.go, documents.go). Backends are
// polled in the background (merger.go, fetch.go, package remote). The last resources of a backend are kept while the
// backend is down, and in etcd or a ConfigMap across restarts of this process (remote/storage.go). A backend's response is not always accepted: freshness.go contains
// the rules, without I/O.
package discovery
