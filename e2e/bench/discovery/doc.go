// Command discovery measures how long discovery requests to a front door take while backends die and hang.
//
//	go run ./e2e/bench/discovery -out e2e/bench/results
//
// It runs internal/discovery and internal/openapi in a separate process behind TLS and HTTP/2, so that their cost can
// be distinguished from the cost of the clients. Backends are listeners in the first process: healthy ones serve TLS,
// hanging ones accept the connection and never respond, dead ones refuse it. The benchmark supplies routes and
// verdicts instead of APIService objects in etcd, so the cost of etcd is not included.
//
// Compared values are measured in the same run, alternately, in the same process. On a shared machine only their
// ratios are meaningful.
package main
