// Package cluster is an existing cluster as a front serves it: connections to its API server, the identity of the requests there,
// its documents of discovery and OpenAPI from memory, and the causes of unavailable APIServices.
package cluster
