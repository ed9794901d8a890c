// Package doctor walks a broken APIService hop by hop and says which one is broken and how to repair it.
//
// It needs read rights only (for the APIService, its Service, the EndpointSlices and the group-version itself), so that it
// works on every API server. It also connects to the endpoints from this machine and inspects their certificates. The two
// views are combined in apiserverview.go: an endpoint that cannot be dialled from here is no finding while the API server
// gets answers from it, and what cannot be checked from here is reported as unknown.
//
// A finding uses the words of the Available condition, which the Event and the 503 that clients get use too. Where the API
// server has no such condition, the words come from the code of package apiservice that writes it.
//
// The API server of the kubeconfig is trusted, backends are not: handshakes that only inspect accept any certificate,
// nothing secret is sent on them, and responses are bounded and cleaned before they are printed.
package doctor
