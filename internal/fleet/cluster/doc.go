// Package cluster is an existing cluster as a front serves it: connections to its API servers, the identity of the requests there,
// its documents of discovery and OpenAPI from memory, and the causes of unavailable APIServices.
//
// # Guarantees
//
//   - A request goes to an API server that answers /readyz with success. If there is none, it goes to any.
//   - A request with the credentials of a client never uses a connection with the certificate of the front door.
//   - A user gets a document only after the API server has decided about it, or, while the API server does not answer, if the
//     front door has authenticated the user and the API server has not refused the user's last request for a document.
//   - Concurrent fetches of a document are shared by requests of one user only.
package cluster
