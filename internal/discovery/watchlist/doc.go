// Package watchlist finds out which resources of extension servers can be watched with initial events (WatchList).
//
// Informers of client-go begin with a watch that asks for initial events (sendInitialEvents=true) and wait for the bookmark
// at their end. A server that does not know the parameter begins a plain watch, and the informer waits for ever without an
// error (kubernetes/kubernetes#140890). To such a watch the front door can answer 422 itself: the informer then lists and
// watches. This package says for which resources it must.
//
// Probe asks one server about one resource (probe.go). A Prober does so for all of them, in the background, and publishes the
// verdicts as a snapshot (prober.go). Requests only look verdicts up.
package watchlist
