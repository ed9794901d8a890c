// Package extension is the extension server host: resources are functions; delegated authn/authz, Table, watch by diff.
//
// Who writes an extension API writes a struct and one method:
//
//	type Queues struct{ ... }
//	func (q *Queues) List(ctx context.Context, query extension.Query) ([]Queue, error)
//
//	host, err := extension.New(extension.Config{
//		Resources: []extension.Resource{extension.Of(extension.Definition[Queue]{...}, queues)},
//		...
//	})
//
// The host owns everything that is the same for all of them: TLS, who the caller is and what they may, discovery in
// both forms, OpenAPI, Table and metadata-only answers, JSON, YAML and protobuf, selectors, pages, watches, warnings,
// errors, health, limits and draining. A provider that can do more than list says so by implementing more: Getter,
// Tabler, Creator, Updater, Deleter, Connecter. Custom hosts a group-version whose paths are no plain resources.
//
// What a caller may see of a PerCaller resource is shared with nobody: views, their history, kept lists and encoded
// bodies are found only by who they were made for.
//
// HTTP is the library's, net/http and golang.org/x/net/http2, and not Portico's own (package engine of the front door): front doors are nearly all of its
// clients, which have looked at each request and keep their connections, so that neither what ours refuses besides nor what it costs
// less would be seen here; and a server that others build with this host gets its security fixes with Go and with a module. There is no flag for it.
//
// Nothing here depends on our own front door. The host trusts identity headers only from a client certificate that the
// ConfigMap kube-system/extension-apiserver-authentication vouches for, as every extension server does, and it links
// no generic API server: leaf packages of apimachinery and the generated types of an API are enough.
package extension
