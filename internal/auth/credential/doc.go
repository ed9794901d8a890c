// Package credential reads what a request shows of its sender, and proves it.
//
// Both the front door and the extension servers use it, so that one set of rules decides which credential counts; the
// essay is in the package documentation of internal/auth.
package credential
