// Package admission implements kube-apiserver's admission, which every write to the local groups passes after authorization.
//
// k8s.io/apiserver provides the machinery: the chain, webhooks, CEL policies, reinvocation, audit annotations, metrics. Package
// plugins implements the plugins that upstream keeps in k8s.io/kubernetes, with upstream's rules and messages.
//
// # Plugins
//
// Plugins are rows of the table in package plugins, in upstream's order: plugins that set defaults come first, then webhooks
// and policies, and quotas last. New of a row gets Deps and the plugin's part of the admission control configuration. It
// returns an admission.Interface that is also a MutationInterface, a ValidationInterface, or both. The plugin may use Deps or
// implement the initializer.Wants... interfaces of k8s.io/apiserver; ValidateInitialization is called afterwards. A plugin
// requests an informer only if Deps.Served reports its resource, because an informer of any other resource never syncs. A
// plugin has no Close method; its goroutines end with Deps.Stopped.
//
// # Startup
//
// New allocates and requests informers, Run starts them. The local groups serve no request until Ready, so that every plugin
// has loaded the objects to enforce. The startup never waits for a webhook or an extension server.
//
// # Bootstrap objects
//
// The namespaces, roles and priority classes of every cluster are created before informers run and before a webhook can be
// reachable. If webhooks and policies were called for them, a dead webhook could prevent the startup, and an administrator
// could not delete its configuration. Requests in a context of WithBootstrap therefore skip webhooks and policies, but no other
// plugins. Only the in-process client for bootstrapping uses it.
package admission
