// Package e2e is stories: what a person types into a terminal, with a real kubectl, and what they see.
//
// The stories are the files in testdata. The tests build aggregator, extserver, kubectl and mappers (the last two are modules of
// their own, so that the front door does not carry their dependencies), put them on PATH and run every story in an
// empty directory with nothing else prepared. Everything listens on 127.0.0.1 on ports that were free; every process is
// stopped by its id and waited for. Waiting is polling for a condition with a deadline of minutes: a slow machine makes a
// story slower, never wrong.
package e2e
