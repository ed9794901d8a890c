// Package remote collects the documents that describe backends, for discovery and OpenAPI: in the background, bounded, and
// never during a request.
//
// A Collector keeps one record for each remote group-version. It polls each backend at once when something changed, then
// periodically, with a backoff while the backend fails, and one backend never waits for another (poller.go). It stores
// records for the next start and for the other replicas (storage.go), and has documents published when a record changed.
// What is fetched and published is up to its users.
//
// Requests use the backend's probe transport, so that they do not compete with clients for connections; they carry this
// server's own identity and nothing of any client; redirects are not followed; every body has a limit and every poll a
// deadline; few bodies are read concurrently, so that a thousand backends that answer at once cost the memory of a few.
package remote
