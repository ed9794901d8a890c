// Package lifecycle runs the controllers. Those that are one file are here: the namespaces and service accounts of every
// cluster, aggregated roles, the status of policies, the Service kubernetes with its ranges and allocations, the uses of
// tokens. The others have packages: namespaces (finalization), quotas (status), trust (root CA and what extension servers
// trust), garbage (the garbage collector) and debts (what finalized namespaces left at dead backends). They share
// reconcile (the work queue loop) and contents (bounded requests to a backend).
//
// Controllers read from informers and write through the API, so that their changes reach every replica in the same way as
// those of users. Running them in several replicas at once is safe: every write is a create that may find its object
// there, or an update with a resourceVersion.
package lifecycle
