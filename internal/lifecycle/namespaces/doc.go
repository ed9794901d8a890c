// Package namespaces finalizes namespaces: it deletes everything in a namespace that is being deleted, at every backend,
// and then removes the namespace's finalizer.
//
// finalizer.go reconciles one namespace, plan.go decides what is deleted and in which order, delete.go and clear.go delete
// it, own_backends.go handles backends that run in the namespace, blocked.go finalizes without a dead backend, and
// conditions.go writes the status. served.go is the caller's view of discovery.
package namespaces
