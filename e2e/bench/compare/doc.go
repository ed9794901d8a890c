// Package compare finds the figures of the front door that are worse in one set of benchmark pages than in another,
// by more than their noise.
package compare
