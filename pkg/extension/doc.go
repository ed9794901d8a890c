// Package extension hosts Kubernetes-style APIs that store nothing: metrics, projects, views. It is for servers behind any front door
// that aggregates APIs, kube-apiserver and Portico's alike.
//
// An API is a struct and one method:
//
//	type Queues struct{ ... }
//	func (q *Queues) List(ctx context.Context, query extension.Query) ([]Queue, error)
//
//	err := extension.Serve(ctx, options, extension.Of(extension.Definition[Queue]{...}, queues))
//
// Serve is a whole server: Options say how the front door is reached, and have flags under kube-apiserver's names; the server makes
// its certificate, registers its APIServices, and has the front door authenticate and authorize callers. Host is the part that
// answers requests, for programs with an authentication of their own.
//
// The host owns everything that is the same for all of them: TLS, who the caller is and what they may, discovery in
// both forms, OpenAPI, Table and metadata-only answers, JSON, YAML and protobuf, selectors, pages, watches, warnings,
// errors, health, limits and draining. A provider that can do more than list implements more interfaces: Getter,
// Tabler, Creator, Updater, Deleter, Connecter, Notifier. Custom hosts a group-version whose paths are no plain resources.
//
// Nothing of a PerCaller resource is shared between callers: views, their history, paged lists and encoded bodies are keyed
// by the caller.
//
// HTTP is served by net/http and golang.org/x/net/http2 and not by Portico's own engine. Nearly all clients of an extension
// server are front doors, which have checked each request and keep their connections open, so that the stricter parsing and
// the lower cost of our engine would not matter here; and servers that others build with this host get security fixes with
// Go and the module. There is no flag for it.
//
// Nothing here depends on our own front door. The host trusts identity headers only from a client certificate that the
// ConfigMap kube-system/extension-apiserver-authentication vouches for, as every extension server does, and it links
// no generic API server: leaf packages of apimachinery and the generated types of an API are enough.
package extension
