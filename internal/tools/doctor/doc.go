// Package doctor examines a failing APIService hop by hop, reports which hop is broken, and prints commands that
// repair it.
//
// It needs read permissions only (for the APIService, its Service, the EndpointSlices and the group-version itself),
// so it works against every API server. It also connects to the endpoints from this machine and inspects their
// certificates. apiserverview.go combines the two views: an endpoint that this machine cannot dial is not a finding
// while the API server gets responses from it, and anything that cannot be checked from this machine is reported as
// unknown.
//
// A finding uses the message of the Available condition, which also appears in the Event and in the 503 that clients
// receive. If the API server does not set such a condition, the message comes from the code of package apiservice
// that would set it.
//
// Clusters behind a front door are not examined: the package reports the conditions that the front door has written.
//
// The API server of the kubeconfig is trusted; backends are not. Handshakes for inspection accept any certificate and
// send no secrets. Responses are bounded and sanitized before they are printed.
package doctor
