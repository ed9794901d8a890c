// Package watchlist determines which resources of extension servers can be watched with initial events (WatchList).
//
// Informers of client-go begin with a watch that requests initial events (sendInitialEvents=true) and wait for the bookmark
// that ends them. A server that does not support the parameter begins a plain watch, and the informer waits forever without
// an error (kubernetes/kubernetes#140890). Portico can answer such a watch with 422: the informer then lists and watches.
// This package determines the resources for which that is necessary.
//
// Probe probes one resource of one server (probe.go). A Prober probes all of them in the background and publishes the
// verdicts as a snapshot (prober.go). Requests only look up verdicts.
package watchlist
