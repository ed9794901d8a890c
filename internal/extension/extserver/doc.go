// Package extserver is the extension server program in one value: host, host metrics, trust, registration, in order.
//
// cmd/extserver runs it alone, `aggregator dev` runs it beside a front door in one process. Both give it a kubeconfig
// and nothing else: it listens on its own TLS port and talks to the front door over the network, as any other
// extension server does.
package extserver
