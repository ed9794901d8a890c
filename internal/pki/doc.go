// Package pki has certificate authorities, certificates, their rotation and reloading. Every tls.Config is made here.
//
// # What is trusted
//
// Three authorities are kept apart, because each one's signature means something else. The cluster CA signs server
// certificates; the client CA signs client certificates; the front-proxy CA signs front proxies, which may state the
// identity of others. A leaf of one never counts for another: auth/authn refuses bundles that overlap.
//
// # What is checked twice
//
// The TLS handshake only asks for a client certificate; it does not decide whether it is valid. [Bundle.VerifyClient]
// decides, for every request and not once per connection: a connection may outlive its certificate, and a resumed
// session may outlive the authority (CVE-2025-68121).
//
// # What is replaced
//
// Leaves are renewed as they age. An authority is replaced in three steps ([Rotate]), between which two are accepted and one signs; which one is
// the one whose key is there. Every step is one rename, so that whoever reads the files between any two finds a whole state.
//
// # What is promised to callers
//
// A [KeyPair] or [Bundle] is valid when it is made, and stays usable: a bad reload (a half written file, a key that
// does not match, an empty bundle) keeps the last good one, logs the error and reports it in [KeyPair.Stale] and
// [Bundle.Stale].
package pki
