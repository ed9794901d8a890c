// Package remote collects the documents of backends for discovery and OpenAPI, in the background, with limits, and never
// during a request.
//
// A Collector keeps one record for each remote group-version. It polls each backend immediately when something changed,
// then periodically, with a backoff while the backend fails. One backend never waits for another (poller.go). It stores
// records for the next start and for the other replicas (storage.go), and publishes documents when a record changed. The
// importing package determines the content of the documents.
//
// Requests use the backend's probe transport, so that they do not compete with clients for connections. They carry this
// server's identity and no data of a client. Redirects are not followed. Every body has a size limit and every poll a
// deadline. Only a few bodies are read concurrently, so that a thousand backends that answer simultaneously need the memory
// of a few.
package remote
