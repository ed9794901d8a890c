// Package apitest provides a Kubernetes API server for tests. It runs in the process of the test, requires no downloads, and
// starts in a fraction of a second.
//
//	func TestReconciler(t *testing.T) {
//		env := apitest.Start(t)
//		namespace := env.Namespace()
//		client, err := kubernetes.NewForConfig(env.Config)
//		...
//	}
//
// The server is a complete front door (package frontdoor). Namespaces terminate, the garbage collector deletes dependents,
// quotas are enforced, and service accounts have tokens. Custom resources, webhooks, admission policies and API aggregation
// work: Serve hosts resources behind an APIService, and Backend is an extension server that fails on demand. Nodes, a
// scheduler, and workload controllers are missing: a Deployment gets no pods, as in envtest.
//
// For users of controller-runtime's envtest, Environment is compatible with envtest.Environment. docs/testing.md compares
// both.
//
// At the end of the test, everything is stopped and removed. No goroutine, file or process remains.
package apitest
