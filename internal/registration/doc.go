// Package registration makes an extension server known to a front door: a Service to be reached by, an APIService for each
// group-version, written by server-side apply or printed as manifests, and the serving certificate that they name.
//
// The certificate is made by the server itself and renewed before it ends. The authority that signs it signs nothing
// else. It lives in memory, so that a restarted server has a new one, or in a directory (CertificateConfig.Dir), so that a
// restarted server keeps it. A server that may not register its authority is given a certificate from files instead.
//
// The authority is replaced before it ends too, and without a request that fails: first the new one is added to the
// caBundle, then, once the registration has it and front doors have had time to see it, the serving certificate is signed
// by the new one, and the old one leaves the caBundle last. See rotation.go.
package registration
