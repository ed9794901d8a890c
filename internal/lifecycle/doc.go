// Package lifecycle is controllers: namespace finalization, default service accounts, root CA publishing, the ConfigMap
// that tells extension servers whom to trust, and the namespaces every cluster has.
//
// Each controller is one file and knows nothing of the others. They read from informers and write through the API, so
// what they change comes back to every replica the same way as what a user changes. Running them in several replicas at
// once is safe: every write is a create that may find its work done, or an update with a resourceVersion.
package lifecycle
