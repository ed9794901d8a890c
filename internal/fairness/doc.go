// Package fairness is whose turn it is: API Priority and Fairness (KEP-1040) by the flowcontrol.apiserver.k8s.io objects.
//
// The library, k8s.io/apiserver/pkg/util/flowcontrol, follows the objects, writes their status, estimates how wide a
// request is and divides the seats among the levels, lent and borrowed ones included; it keeps the metrics. What happens
// to a request is ours, because there the library costs 22 microseconds and 67 allocations each, and this half of one and 1:
//
//   - The FlowSchemas are compiled into a snapshot (ranks.go, schema.go). A test compares it with the library's choice.
//   - A level is a word of seats taken, and queues (level.go, queue.go). The library's controller makes levels as the
//     queue sets of its factory (controller.go), and sets their limits. A free seat is one compare-and-swap; queues,
//     shuffle sharding and virtual time are for those who wait. Their virtual time is that of start-time fair queueing:
//     it moves when a request from a queue is seated, so a level where nobody waits has none.
//   - The library sees the seats of a level as they are every few milliseconds, and the greatest demand between (sight.go).
//   - A [Turn] is taken and given back, rather than a handler being run inside. A watch ends its turn when its initial
//     events are out, a request for a backend soon after it was handed over, so that a backend that hangs keeps nobody's
//     seat.
//   - The objects that upstream creates are created and kept here (keep.go).
//
// What is believed: user and RequestInfo in the request's context, which the chain has put there. Nothing that a client
// says about itself chooses a flow.
package fairness
