// Package rbac is the front door's answer to "may they?".
//
// Roles and bindings are compiled into one immutable index, swapped whole when they change. A decision looks up the
// user and each of their groups, and asks only the roles that are bound to them; no binding is scanned. The essay is in
// the package documentation of internal/auth.
package rbac
