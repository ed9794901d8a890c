// Package programs builds the programs that end-to-end tests run, and runs them.
//
// Ours are built from the tree; everybody else's from the modules that nested go.mod files pin, unmodified. The flags that
// change compilation are those of go test itself, so that packages which it has compiled are not compiled again.
package programs
