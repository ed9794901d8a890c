// Package outside has programs of a module that requires portico.dev as anybody would: an extension server, a front door without core v1,
// and an operator with its test suite. Their tests prove that the packages below pkg are enough.
package outside
