// Package lifecycle runs the controllers. This package contains the small ones: the system namespaces and their service
// accounts, aggregated roles, the status of policies, the Service kubernetes with its ranges and allocations, and the uses of
// tokens. Larger ones have packages: namespaces (finalization), quotas (status), trust (root CA and trust data for extension
// servers), garbage (the garbage collector) and debts (objects of finalized namespaces at unavailable backends). They share
// reconcile (the work queue loop).
//
// Controllers read from informers and write through the API, so that their changes reach every replica in the same way as
// changes by users. They can run in several replicas at once: every write is a create that tolerates an existing object, or an
// update with a resource version.
package lifecycle
