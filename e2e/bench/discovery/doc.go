// Command discovery measures what clients wait for when they ask a front door what there is, while backends die and hang.
//
//	go run ./e2e/bench/discovery -out docs/bench
//
// It runs internal/discovery and internal/openapi in a process of their own behind TLS and
// HTTP/2, so that what they cost can be told from what asking costs. Backends are listeners in the first process: those
// that are alive answer over TLS, those that hang take the connection and say nothing, those that are dead refuse it.
// Routes and verdicts come from the benchmark instead of from APIService objects in etcd, whose cost is not measured here.
//
// Comparisons are made in one run, by turns, in one process: the numbers of a shared machine mean little, their ratios do.
package main
