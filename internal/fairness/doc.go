// Package fairness is API Priority and Fairness (KEP-1040) by the flowcontrol.apiserver.k8s.io objects.
//
// The library, k8s.io/apiserver/pkg/util/flowcontrol, follows the objects, writes their status, estimates how wide a
// request is and divides the seats among the levels, lent and borrowed ones included; it keeps the metrics. What
// happens to a request is implemented here, because there the library costs 22 microseconds and 67 allocations each,
// and this half of one and 1:
//
//   - The FlowSchemas are compiled into a snapshot (classifier.go). A test compares it with the library's choice.
//   - A level is a word of seats taken, and queues (level.go, queue.go). The library's controller makes levels as the
//     queue sets of its factory, and sets their limits. A free seat is one compare-and-swap; queues, shuffle sharding and
//     virtual time are for requests that wait. Their virtual time is that of start-time fair queueing: it moves when a
//     request from a queue is seated, so a level without waiting requests has none.
//   - The library's gauges of a level are updated every few milliseconds, with the greatest demand in between (gauges.go).
//   - A [Reservation] is taken and released, rather than a handler being run inside. A watch releases its seat when its
//     initial events are sent, a request for a backend soon after it was handed over, so that a backend that hangs keeps
//     no other request's seat.
//   - The objects that upstream creates are created and maintained here (ensure.go).
//
// What is trusted: user and RequestInfo in the request's context, which the chain has put there. Nothing that a client
// says about itself chooses a flow.
package fairness
