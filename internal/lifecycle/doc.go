// Package lifecycle is controllers: namespace finalization, default service accounts, root CA publishing, the ConfigMap
// that tells extension servers whom to trust, and the namespaces every cluster has.
//
// Each controller knows nothing of the others, and all but namespace finalization are one file. That one reads in this
// order: namespace.go (one look at one namespace), survey.go (what there is to clear), sweep.go and clear.go (clearing it),
// endangered.go (backends that go with the namespace), waive.go (going without a backend). What is left behind then, and
// paid later, is package debts; how any backend is asked is package contents.
//
// Controllers read from informers and write through the API, so what they change comes back to every replica the same way
// as what a user changes. Running them in several replicas at once is safe: every write is a create that may find its work
// done, or an update with a resourceVersion.
package lifecycle
