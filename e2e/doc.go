// Package e2e tests stories: commands that a user types into a terminal, with a real kubectl, and their output.
//
// The stories are the files in testdata. The tests build aggregator, extserver, kubectl and mappers, put them on PATH and run
// every story in a new, empty directory. kubectl and mappers are separate modules, so that the front door does not have their
// dependencies. Every program listens on free ports of 127.0.0.1. The tests stop every process by its id and wait for its exit.
// Waits poll a condition with a deadline of minutes: a slow machine makes a story slower and does not change its result.
package e2e
