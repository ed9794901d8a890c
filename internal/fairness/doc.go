// Package fairness is whose turn it is: API Priority and Fairness (KEP-1040) by the flowcontrol.apiserver.k8s.io objects.
//
// The queues, the shares of the priority levels and their metrics are the library's, k8s.io/apiserver/pkg/util/flowcontrol.
// Ours are three things around it:
//
//   - A [Turn] is taken and given back, rather than a handler being run inside the library. The library holds a seat for
//     as long as a function runs; upstream therefore runs that function on a goroutine of its own for each watch. Here
//     it is a coroutine, for every request: it costs less than a goroutine, and whoever holds the turn decides when it
//     is over. A watch ends its turn when its initial events are out, a request for a backend soon after it was handed
//     over, so that a backend that hangs keeps nobody's seat.
//   - The objects that upstream creates are created and kept here (keep.go).
//   - The library's own parts are made when [Fairness.Run] begins, because its queue starts a goroutine when it is made.
//
// What is believed: user and RequestInfo in the request's context, which the chain has put there. Nothing that a client
// says about itself chooses a flow.
package fairness
