// Package pki implements certificate authorities, certificates, their rotation and reloading. All tls.Configs are
// created here.
//
// # Trust
//
// There are three separate authorities, because their signatures have different meanings. The cluster CA signs server
// certificates. The client CA signs client certificates. The front-proxy CA signs certificates of front proxies,
// which may assert the identity of their clients. A leaf of one authority is never accepted as a leaf of another:
// auth/authn refuses bundles that overlap.
//
// # Repeated checks
//
// The TLS handshake requests a client certificate but does not verify it. [Bundle.VerifyClient] verifies it for every
// request instead of once per connection, because a connection may outlive its certificate, and a resumed session may
// outlive the authority (CVE-2025-68121).
//
// # Rotation
//
// Leaves are renewed as they age. An authority is replaced in three steps ([Rotate]). Between the steps two
// authorities are accepted, and the one with the key in the directory signs. Every step takes effect by a single rename, so that
// readers of the files always see a consistent state.
//
// # Guarantees
//
// A new [KeyPair] or [Bundle] is valid and stays usable. A failed reload (a partially written file, a key that does
// not match, an empty bundle) keeps the last valid content, logs the error and reports it in [KeyPair.Stale] and
// [Bundle.Stale].
package pki
