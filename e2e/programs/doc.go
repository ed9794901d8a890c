// Package programs builds the programs that end-to-end tests run, and runs them.
//
// Our programs are built from the tree. Other programs are built unmodified from modules that nested go.mod files
// pin. The build flags are the flags of go test, so that packages that go test has compiled are not compiled again.
package programs
