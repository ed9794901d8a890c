// Package fairness implements API Priority and Fairness (KEP-1040) for the flowcontrol.apiserver.k8s.io objects.
//
// k8s.io/apiserver/pkg/util/flowcontrol follows the objects, writes their status, estimates the width of a request, divides the
// seats among the levels, including lending and borrowing, and maintains the metrics. This package implements the handling of
// requests, because there the upstream implementation costs 22 microseconds and 67 allocations per request, and this one half a
// microsecond and one allocation:
//
//   - The FlowSchemas are compiled into a snapshot (classifier.go). A test compares it with upstream's classification.
//   - A level consists of a word with the number of seats taken, and queues (level.go, queue.go). Upstream's controller
//     creates levels as the queue sets of its factory, and sets their limits. A free seat is taken with one
//     compare-and-swap. Queues, shuffle sharding and virtual time apply to waiting requests only. The virtual time is that
//     of start-time fair queueing: it advances when a queued request is seated, so that a level without waiting requests
//     does not need one.
//   - Upstream's gauges of a level are updated every few milliseconds, with the highest demand in between (gauges.go).
//   - A [Reservation] is acquired and released, instead of running a handler inside it. A watch releases its seat after
//     its initial events have been sent. A request for a backend releases its seat soon after it was forwarded, so that a
//     backend that hangs does not hold the seats of other requests.
//   - This package creates and maintains the objects that kube-apiserver creates (ensure.go).
//
// The package trusts the user and RequestInfo in the request's context, which preceding handlers have set. Data supplied by a
// client about itself does not select a flow.
package fairness
