// Package network simulates a network between hosts of one process, in virtual time. Only tests import it.
//
// Hosts have one address each. Connections between them are in memory and have the properties of TCP connections on which
// programs depend: a buffer of limited size, order, deadlines, half-open states, resets, and the timeouts of a kernel. A Link
// describes one direction between two hosts: its latency, its loss, and whether it is blocked. Loss delays data, as it does with
// TCP, so that data of different connections arrives in another order.
//
// A Network is usually made and used in one bubble of testing/synctest. Time passes while all goroutines of the bubble wait. Delays
// depend only on the seed, the hosts, and the number of the connection and of the write, and not on the order of goroutines.
package network
