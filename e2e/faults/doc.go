// Package faults is what a backend's bad day costs its clients, and what it costs the clients of others.
//
// Each test assembles the proxied path as the front door does (listener, chain with client certificates, router, proxy,
// transport), puts extension servers behind it, brings a fault about while requests are running, and counts. Clients do
// not retry, so that every failure is seen. Faults of the network are made in network namespaces where the machine lets
// us (root, and the ip command of iproute2), and otherwise in a TCP hop of our own; never by leaving the test out.
//
// How much is done is for the checks of a release, with two slow cores in mind. -writes raises it:
//
//	go test ./e2e/faults -run GoAway -writes 100000
package faults
