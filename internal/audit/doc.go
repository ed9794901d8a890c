// Package audit writes down who asked for what and what came of it: the policy that says how much, and the sinks that
// never hold a request up.
//
// An event is encoded in the goroutine of its request and handed to each sink as bytes. A sink has a queue with a bound
// in bytes and one goroutine; what does not fit is dropped and counted, exactly. So a disk that is full or a webhook that
// hangs costs events and never answers (batch mode). In blocking mode a request waits until its line is written.
//
// Whatever a policy says, the bodies of requests that carry credentials (secrets, service account tokens, token reviews)
// are never in an event: who may read the audit log may not thereby act as others (CVE-2023-22649, CVE-2024-58269).
package audit
