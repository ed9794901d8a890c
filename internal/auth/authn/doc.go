// Package authn authenticates requests. It verifies each credential of a request (front-proxied identity, client
// certificate, bearer token) and allows anonymous requests if configured.
//
// The front door and the extension servers share the rules for credentials ([Authenticate], [Trust]). [Authenticator]
// is the front door's implementation. The security design is in the package documentation of internal/auth.
package authn
