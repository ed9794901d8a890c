// Package recorded checks the results of runs that take too long for every change: that the files are whole, and that
// nothing failed in them without an explanation.
package recorded

//go:generate go run ./picture -in ../behind/result.yaml -out ../../docs/gateway-drills.svg
