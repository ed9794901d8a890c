// Package pki is authorities, leaves, rotation, reloading; every tls.Config is made here.
//
// # What is trusted
//
// Three authorities are kept apart, because each one's signature means something else. The cluster CA signs what
// servers show; the client CA signs who a client is; the front-proxy CA signs who may say on whose behalf a request
// is made. A leaf of one never counts for another: [Overlap] finds bundles that share a certificate, and whoever
// configures trust refuses them.
//
// # What is checked twice
//
// The TLS handshake only asks for a client certificate; it does not decide whether it is good. [Bundle.VerifyClient]
// decides, for every request and not once per connection: a connection may outlive its certificate, and a resumed
// session may outlive the authority (CVE-2025-68121).
//
// # What is promised to the next room
//
// A [KeyPair] or [Bundle] always holds something usable. It is born good or not at all, and a bad reload (a half
// written file, a key that does not match, an empty bundle) keeps the last good one and says so in the log and in
// [KeyPair.Stale] and [Bundle.Stale].
package pki
