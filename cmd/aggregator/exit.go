package main

import "errors"

// exitError ends the program with a status of its own, for commands whose status scripts read.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// exitCode is the status that an error ends the program with: 1 unless it says otherwise.
func exitCode(err error) int {
	var e *exitError
	if errors.As(err, &e) {
		return e.code
	}
	return 1
}
