// Package conformance checks any extension server against what clients and front doors rely on, and scores it.
//
// Checks are independent: each sends its own requests, states what is expected and why, and ends as pass, warn (clients
// work, at a cost), fail, or not-applicable with the reason. Checks only read, unless Config.Write or Config.Rotate is
// set; those remove what they create.
//
// A server is reached in one of two ways. By the name of its APIService, through an API server, as its users do; checks of
// authentication go to its endpoint directly, when that can be reached from here. Or by its URL, as a front proxy does, with
// a certificate that it trusts and X-Remote-* headers.
package conformance
