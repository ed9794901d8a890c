// Package simulation runs front doors against simulated time, network and crashes, in one process. Only tests import it.
//
// A world has one to three replicas of the front door, the real etcd, extension servers and clients, in a bubble of
// testing/synctest. In some worlds gateways are between a front door, as the API server of their cluster, and the extension
// servers. The code is the product's from the listener to the transport, with real TLS; only the network is simulated (package
// network), and time passes when every goroutine waits. A history is a schedule of faults and of operations, which a seed
// determines (schedule.go). Rules hold at every moment, or after the last fault within a bound (rules.go).
// docs/simulation.md explains how to run and replay histories.
//
// A seed determines when each fault and each operation begins, and every delay of the network. It does not determine the order in
// which goroutines run that are ready at the same virtual time. The rules do not depend on that order.
package simulation
