// Package admission is what every write to the local groups passes after authorization: kube-apiserver's admission.
//
// The machinery is k8s.io/apiserver's: the chain, webhooks, CEL policies, reinvocation, audit annotations, metrics. The
// plugins that upstream keeps in k8s.io/kubernetes are ours (package plugins), with upstream's rules and messages.
//
// # A plugin
//
// Plugins are rows of the table in package plugins, in upstream's order: plugins that set defaults come first, then webhooks
// and policies, and quotas last. New of a row gets Deps and the plugin's part of the admission control configuration. It
// returns an admission.Interface that is also a MutationInterface, a ValidationInterface, or both. The plugin may use Deps
// or implement the library's initializer.Wants... interfaces; ValidateInitialization is called afterwards. A plugin requests
// an informer only if Deps.Served reports its resource, because an informer of any other never syncs. A plugin has no Close;
// its goroutines end with Deps.Stopped.
//
// # Starting
//
// New allocates and requests informers, Run starts them. The local groups serve no request until Ready, so that every plugin
// has read what it enforces. Nothing here waits for a webhook or an extension server.
//
// # Bootstrap objects
//
// The namespaces, roles and priority classes of every cluster are created before informers run and before a webhook could be
// up. If webhooks and policies were called for them, a dead webhook could keep the server from ever starting, and an
// administrator could not delete its configuration. Requests in a context of WithBootstrap therefore skip webhooks and
// policies; every other plugin sees them. Only the in-process client for bootstrapping uses it.
package admission
