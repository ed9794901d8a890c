// Package namespaces finalizes namespaces: it deletes all objects in a namespace that is being deleted, at every backend, and
// then removes the namespace's finalizer.
//
// finalizer.go reconciles one namespace, plan.go decides which objects are deleted and in which order, delete.go and clear.go
// delete them, own_backends.go handles backends that run in the namespace, blocked.go finalizes without an unavailable backend,
// and conditions.go writes the status.
package namespaces
