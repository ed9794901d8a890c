// Package openapi serves the merged OpenAPI documents.
//
// Version 3 is an index of documents, one for each group-version, named by the hash of their content. The index and every
// document are served from memory. The documents of local groups are generated at build time. The documents of backends are
// fetched in the background (publisher.go, fetch.go) and the last valid one is kept, so that requests do not wait for
// backends, and the kinds of a dead backend stay described.
//
// Version 2 is one document for all groups, which only old clients read. It is merged when a client reads it (v2.go,
// v2merge.go), from the current or last documents of backends (v2fetch.go, v2document.go), and dropped when it has not been
// read for a while. One build runs at a time and ends when its last reader leaves (builds.go). The parts of local groups
// are kept until then (parts.go).
//
// A backend may only describe its group-versions: fetch.go checks documents before clients receive them.
package openapi
