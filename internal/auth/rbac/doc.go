// Package rbac implements RBAC authorization.
//
// Roles and bindings are compiled into an immutable index that is replaced when they change. A decision looks up the
// user and each group, and checks only the roles bound to them, without scanning bindings. The security design is in
// the package documentation of internal/auth.
package rbac
