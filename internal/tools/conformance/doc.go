// Package conformance checks an extension server against the requirements of clients and front doors, and scores it.
//
// Checks are independent: each sends its own requests, documents the expected behavior and the reason for it, and
// ends as pass, warn (clients work, at a cost), fail, or not-applicable with the reason. Checks only read, unless
// Config.Write or Config.Rotate is set. Checks that write delete the objects they create.
//
// A server is reached in one of two ways. With the name of its APIService, requests go through an API server, like
// those from users. Checks of authentication then go to an endpoint directly, if this machine can reach it. With a
// URL, requests go to the server like those from a front proxy, with a certificate that the server trusts and
// X-Remote-* headers.
package conformance
