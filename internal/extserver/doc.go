// Package extserver assembles the extension server program: the host, metrics, trust and registration.
//
// cmd/extserver runs it alone, and `aggregator dev` runs it with a front door in one process. Both configure it with a
// kubeconfig only. Like any other extension server, it listens on a TLS port and communicates with the front door over the
// network.
package extserver
