// Package tokenwebhook asks a server of the operator's about tokens that nobody here knows, by TokenReview.
//
// Asking and retrying are the library's. What is added is bounds: a deadline, so that a server that hangs costs only
// those whose token nobody else knew, and not for ever; a limit to how many wait for it at once; one question for a
// token however many requests carry it; and a memory of answers.
package tokenwebhook
