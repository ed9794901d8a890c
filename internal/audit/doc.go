// Package audit writes audit events: the policy that decides which, and the log and webhook that never delay a request.
//
// An event is encoded in the goroutine of its request and handed to each sink as bytes. A sink has a queue with a bound
// in bytes and one goroutine; what does not fit is dropped and counted exactly. So a full disk or a webhook that hangs
// costs events and never responses (batch mode). In blocking mode a request waits until its line is written.
//
// Whatever a policy says, the bodies of requests that carry credentials (secrets, service account tokens, token
// reviews) are never in an event: readers of the audit log must not be able to act as others (CVE-2023-22649,
// CVE-2024-58269).
package audit
