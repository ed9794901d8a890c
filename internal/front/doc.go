// Package front is the program `aggregator front`: a front for the API server of an existing cluster, on the machine of its user.
//
// # Trust
//
// The front listens on a loopback address. It accepts one client certificate, which is in the kubeconfig that it writes, and which
// exists as long as the process. Every request has the credentials of the kubeconfig that the front was given: whoever can read the
// written kubeconfig is that user. The API server authenticates, authorizes and audits as it does without the front, and decides
// about impersonation.
//
// # Guarantees
//
// Requests are forwarded byte for byte, with the headers of the client, except its credentials. Documents of discovery and OpenAPI
// are as current as those of the API server, and available while it is not. A failure is a Status that names the cause.
package front
