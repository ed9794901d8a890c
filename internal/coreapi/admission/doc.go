// Package admission is what every write to the local groups passes after authorization: kube-apiserver's admission.
//
// The machinery is k8s.io/apiserver's: the chain, webhooks, CEL policies, reinvocation, audit annotations, metrics. The
// plugins that upstream keeps in k8s.io/kubernetes are ours, one sub-package each, with upstream's rules and messages.
//
// # A plugin
//
// Plugins are rows of the table in sub-package plugins, in upstream's order, which counts: what defaults comes before
// what asks others, and what counts comes last. A row has a name, whether it is on by default, and New, which gets Deps
// and its part of the admission control configuration. New makes an admission.Interface that is also a
// MutationInterface, a ValidationInterface, or both. It may take what it needs from Deps, or implement the library's
// initializer.Wants... interfaces: both are served, and ValidateInitialization is called after. An informer is asked for
// only if Deps.Served says that its resource exists here: an informer of something that is not served never syncs.
// A plugin keeps nothing that has to be closed; what runs ends with Deps.Stopped.
//
// # Starting
//
// New allocates and asks for informers, Run starts them. The local groups serve nobody until Ready, so that no request
// meets a plugin that does not know yet what to enforce. Nothing here waits for a webhook or an extension server.
//
// # Founding
//
// What the house itself brings (the namespaces and roles of every cluster) is written before informers run and before
// anything behind the front door can be up. A webhook or a policy that has its say then could keep the house from ever
// starting, and whoever wants to delete it out of the house. Such requests carry Founding in their context and are not
// shown to webhooks and policies; every other plugin sees them. Only the in-process client for bootstrapping says so.
package admission
