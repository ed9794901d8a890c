// Package authn is the front door's answer to "who?".
//
// It joins what [credential] proves (front-proxied identities, client certificates) with the bearer tokens this house
// knows (the token file, service accounts) and ends with anonymous. The essay is in the package documentation of
// internal/auth.
package authn
