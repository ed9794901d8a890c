// Package extension hosts Kubernetes-style APIs that store nothing: metrics, projects, views. It works behind any front door
// that aggregates APIs, including kube-apiserver and Portico.
//
// An API is a struct with one method:
//
//	type Queues struct{ ... }
//	func (q *Queues) List(ctx context.Context, query extension.Query) ([]Queue, error)
//
//	err := extension.Serve(ctx, options, extension.Of(extension.Definition[Queue]{...}, queues))
//
// Serve runs a complete server. Options specify how to reach the front door; AddFlags binds them to flags with
// kube-apiserver's names. The server generates its certificate, registers its APIServices, and delegates authentication and
// authorization to the front door. Host is the part that serves requests, for programs with their own authentication.
//
// The host implements everything that such APIs have in common: TLS, authentication and authorization, discovery in both
// forms, OpenAPI, Table and metadata-only responses, JSON, YAML and protobuf, selectors, paging, watches, warnings, errors,
// health checks, limits and draining. A provider with more operations than List implements more interfaces: Getter, Tabler,
// Creator, Updater, Deleter, Connecter, Notifier. Custom hosts a group-version with paths other than plain resources.
//
// Callers of a PerCaller resource share no data: views, their history, paged lists and encoded bodies are keyed by the
// caller.
//
// The host uses net/http and golang.org/x/net/http2, not Portico's HTTP engine. Nearly all clients of an extension server are
// front doors, which have validated each request and keep their connections open, so the stricter parsing and the lower cost
// of that engine would not matter here. Servers built with this package get security fixes through Go and the module. No flag
// changes this.
//
// The package does not depend on Portico's front door. The host trusts identity headers only from a client certificate that
// is issued by a CA in the ConfigMap kube-system/extension-apiserver-authentication, as every extension server does. It does
// not link the generic API server: leaf packages of apimachinery and the generated types of an API are enough.
package extension
