// Package faults measures the effect of a faulty backend on its clients and on the clients of other backends.
//
// Each test assembles the proxied path as the front door does (listener, chain with client certificates, router, proxy,
// transport) with extension servers behind it, causes a fault while requests are running, and counts the results. Clients do not
// retry, so that every failure is visible. Network faults are created in network namespaces if the machine permits it (root, and
// the ip command of iproute2), and otherwise in a TCP hop of this package. No test is skipped for this reason.
//
// The default amount of work is meant for the release checks on two slow cores. -writes increases it:
//
//	go test ./e2e/faults -run GoAway -writes 100000
package faults
