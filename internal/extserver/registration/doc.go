// Package registration registers an extension server with a front door: it writes a Service, and an APIService for each
// group-version, by server-side apply or as manifests, and manages the serving certificate.
//
// The server generates the certificate and renews it before it expires. The authority that signs it signs nothing else. It is
// kept in memory, so that a restarted server has a new one, or in a directory (CertificateConfig.Dir), so that a restarted
// server keeps it. A server without permission to register its authority uses a certificate from files instead.
//
// The authority is replaced before it expires too, without failed requests: the new authority is first added to the caBundle.
// When the registration contains it and front doors have had time to see it, the serving certificate is signed by the new
// authority. At the end, the old authority is removed from the caBundle. See rotation.go.
package registration
