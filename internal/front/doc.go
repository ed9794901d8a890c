// Package front is the program `aggregator front`: a front for the API server of an existing cluster, on the machine of its user.
//
// # Trust
//
// The front listens on a loopback address. It accepts one client certificate, which is in the kubeconfig that it writes, and which
// exists as long as the process. Every request is sent with the credentials of the given kubeconfig, so that everyone who can read the
// written kubeconfig acts as this user. The API server authenticates, authorizes and audits as without the front, and decides
// about impersonation.
//
// # Guarantees
//
// Requests are forwarded byte for byte, with the headers of the client, except its credentials. Documents of discovery and OpenAPI
// are as current as the API server's, and remain available during its outages. A failure is a Status that names the cause.
package front
