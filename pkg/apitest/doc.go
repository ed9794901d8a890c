// Package apitest is a Kubernetes API server for tests. It runs in the process of the test, needs nothing to be downloaded, and is
// ready in a fraction of a second.
//
//	func TestReconciler(t *testing.T) {
//		env := apitest.Start(t)
//		namespace := env.Namespace()
//		client, err := kubernetes.NewForConfig(env.Config)
//		...
//	}
//
// It is a whole front door (package frontdoor): namespaces terminate, the garbage collector collects what owners leave, quotas
// count, service accounts have tokens, custom resources, webhooks and admission policies work, and so does API aggregation: Serve
// hosts resources behind an APIService, and Backend is an extension server that fails on demand. There are no nodes, no
// scheduler, and no controllers of workloads: a Deployment stays without pods, as in envtest.
//
// Users of controller-runtime's envtest keep their code with Environment, which has the shape of envtest.Environment. docs/testing.md
// compares both.
//
// Everything is stopped and removed when the test ends. Nothing is left: no goroutine, no file, no process.
package apitest
