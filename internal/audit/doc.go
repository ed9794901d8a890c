// Package audit writes audit events. It contains the policy, which selects events, and the log and webhook sinks.
//
// An event is encoded on the goroutine of its request and passed to each sink as bytes. A sink has one goroutine and
// a queue limited in bytes. Events that do not fit are dropped and counted. So in batch mode a full disk or a hung
// webhook loses events but never delays responses. In blocking mode a request waits until its event is written.
//
// Regardless of the policy, events never contain the bodies of requests that carry credentials (secrets, service
// account tokens, token reviews), so that readers of the audit log cannot impersonate users (CVE-2023-22649,
// CVE-2024-58269).
package audit
