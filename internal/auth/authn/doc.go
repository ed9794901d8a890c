// Package authn authenticates requests: it verifies each credential that a request presents (front-proxied identities,
// client certificates, bearer tokens), and allows anonymous requests where they are configured.
//
// Both the front door and the extension servers use its rules for credentials ([Authenticate], [Trust]);
// [Authenticator] is the front door's. The security essay is in the package documentation of internal/auth.
package authn
