// Package durability tests that acknowledged writes survive killed processes and faults of etcd.
//
// Each test runs the real program with clients that write, read and watch during a fault. Package consistency checks the observations
// of the clients against every change in etcd: no acknowledged write may be missing, no rejected write may be stored, and no
// watch may have missed, repeated or invented an event.
package durability
