// Package doctor walks a broken APIService hop by hop and says which one is broken and how to mend it.
//
// It asks the API server for what anybody with read rights may ask (the APIService, its Service, the EndpointSlices, the
// group-version itself), so that it works on every API server, and it looks at the endpoints from this machine: can
// they be dialled, what certificate do they show. The two views are weighed against each other (testimony.go): an
// endpoint that cannot be dialled from here is no finding while the API server gets answers from it, and what cannot be
// known from here is said to be unknown.
//
// What is broken is told in the words of the Available condition, which are those of the Event and of the 503 that
// clients get. Where the API server has said nothing, the words are made by the code that writes the condition
// (apiservice/secondopinion.go).
//
// What is trusted: the API server of the kubeconfig. A backend is believed nothing: handshakes that only look accept
// any certificate, nothing secret is sent on them, and what it says is bounded and cleaned before it is printed.
package doctor
