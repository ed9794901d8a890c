package extension

import "k8s.io/apimachinery/pkg/runtime/schema"

// parameter makes one parameter in the spelling of an OpenAPI version.
type parameter func(name, in, kind, description string, required bool) map[string]any

// pathsOf are the paths of one resource. The operations carry the kind they answer with and what they do to it: by
// those, and not by the paths, kubectl finds the schema of a resource.
func pathsOf(s Resource, one, many map[string]any, param parameter) map[string]any {
	base := "/apis/" + s.GroupVersion().String() + "/"
	name := param("name", "path", "string", "name of the "+s.kind.Kind, true)
	if !s.namespaced {
		return map[string]any{
			base + s.gvr.Resource:             item(operation(s, "list", "", many), listParameters(param)),
			base + s.gvr.Resource + "/{name}": item(operation(s, "get", "", one), []any{name}),
		}
	}
	inNamespace := base + "namespaces/{namespace}/" + s.gvr.Resource
	namespace := param("namespace", "path", "string", "object name and auth scope, such as for teams and projects", true)
	return map[string]any{
		base + s.gvr.Resource:   item(operation(s, "list", "ForAllNamespaces", many), listParameters(param)),
		inNamespace:             item(operation(s, "list", "Namespaced", many), append([]any{namespace}, listParameters(param)...)),
		inNamespace + "/{name}": item(operation(s, "get", "Namespaced", one), []any{name, namespace}),
	}
}

func item(operation map[string]any, parameters []any) map[string]any {
	return map[string]any{"get": operation, "parameters": parameters}
}

func operation(s Resource, action, scope string, body map[string]any) map[string]any {
	verb, id := "read the specified ", "read"
	if action == "list" {
		verb, id = "list objects of kind ", "list"
	}
	if scope == "ForAllNamespaces" {
		id += camel(s.gvr.Group, s.gvr.Version) + s.kind.Kind + scope
	} else {
		id += camel(s.gvr.Group, s.gvr.Version) + scope + s.kind.Kind
	}
	return map[string]any{
		"description":                     verb + s.kind.Kind,
		"operationId":                     id,
		"tags":                            []string{tag(s.GroupVersion())},
		"responses":                       okUnauthorized(body),
		"x-kubernetes-action":             action,
		"x-kubernetes-group-version-kind": kindExtension(s.kind),
	}
}

func kindExtension(k schema.GroupVersionKind) map[string]any {
	return map[string]any{"group": k.Group, "version": k.Version, "kind": k.Kind}
}

func listParameters(param parameter) []any {
	return []any{
		param("fieldSelector", "query", "string", "Restricts the answer to objects whose fields match.", false),
		param("labelSelector", "query", "string", "Restricts the answer to objects whose labels match.", false),
		param("limit", "query", "integer", "Accepted and not needed: lists are complete.", false),
		param("resourceVersion", "query", "string", "The version that the answer must at least have.", false),
		param("resourceVersionMatch", "query", "string", "How resourceVersion is meant: Exact or NotOlderThan.", false),
		param("sendInitialEvents", "query", "boolean", "Begins a watch with what exists.", false),
		param("allowWatchBookmarks", "query", "boolean", "Asks for BOOKMARK events.", false),
		param("timeoutSeconds", "query", "integer", "Ends a watch after this time.", false),
		param("watch", "query", "boolean", "Asks for changes instead of a list, where the resource can be watched.", false),
	}
}
