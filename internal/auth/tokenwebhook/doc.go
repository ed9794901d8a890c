// Package tokenwebhook verifies tokens that no other authenticator knows, by a TokenReview that a server of the
// operator's answers.
//
// Requests and retries are the library's. Added here are bounds: a deadline, so that a server that hangs delays only
// requests whose token no other authenticator knew, and not for ever; a limit to how many wait for it at once; one
// review for a token however many requests carry it; and a cache of results.
package tokenwebhook
