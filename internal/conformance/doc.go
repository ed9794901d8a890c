// Package conformance examines an extension server, anybody's, against what clients and front doors rely on, and gives
// marks.
//
// Each check stands alone: it asks its own questions, says what is expected and why, and ends as pass, warn (clients
// get along, at a price), fail, or not-applicable with the reason. Checks only read, unless Config.Write or
// Config.Rotate ask for more, and what those make they remove again.
//
// A server is asked in one of two ways. By the name of its APIService: through an API server, as its users do; what only
// the extension server itself can answer, such as whom it trusts, is asked at its endpoint when that can be reached from
// here. Or by its URL, as a front proxy does: with a certificate that it trusts and X-Remote-* headers.
package conformance
