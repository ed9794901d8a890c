package extension

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/respond"
)

const openapiV3Media = respond.MediaJSON

// openapi contains the OpenAPI documents of the hosted resources: an index and a document for each group-version in v3, and
// one document in v2. They are built once for each catalog.
type openapi struct {
	index respond.Document
	v3    map[string]respond.Document // keyed by "apis/<group>/<version>"
	v2    respond.Document
}

func newOpenAPI(resources []Resource, serverVersion string) (*openapi, error) {
	o := &openapi{v3: map[string]respond.Document{}}
	index := map[string]any{}
	for _, group := range groupNames(resources) {
		for _, gv := range groupVersions(resources, group) {
			doc, err := documentV3(resourcesIn(resources, gv), gv, serverVersion)
			if err != nil {
				return nil, err
			}
			path := "apis/" + gv.String()
			if o.v3[path], err = newDocument(openapiV3Media, doc); err != nil {
				return nil, err
			}
			index[path] = map[string]any{"serverRelativeURL": "/openapi/v3/" + path + "?hash=" + strings.Trim(o.v3[path].ETag, `"`)}
		}
	}
	var err error
	if o.index, err = newDocument(openapiV3Media, map[string]any{"paths": index}); err != nil {
		return nil, err
	}
	v2, err := documentV2(resources, serverVersion)
	if err != nil {
		return nil, err
	}
	o.v2, err = newDocument(respond.MediaJSON, v2)
	return o, err
}

// serve serves /openapi/v3, /openapi/v3/apis/<group>/<version> and /openapi/v2. It returns false if the document does not
// exist.
func (o *openapi) serve(w http.ResponseWriter, r *http.Request) bool {
	switch path := strings.TrimSuffix(r.URL.Path, "/"); {
	case path == "/openapi/v2":
		o.v2.Serve(w, r)
		return true
	case path == "/openapi/v3":
		o.index.Serve(w, r)
		return true
	default:
		doc, ok := o.v3[strings.TrimPrefix(path, "/openapi/v3/")]
		if !ok {
			return false
		}
		// A hash identifies immutable content. For a stale hash, serve returns the current document, where kube-openapi
		// redirects: a front door does not follow the redirects of a backend.
		if `"`+r.URL.Query().Get("hash")+`"` == doc.ETag {
			doc.CacheControl = "public, immutable"
			w.Header().Set("Expires", time.Now().Add(365*24*time.Hour).UTC().Format(http.TimeFormat))
		}
		doc.Serve(w, r)
		return true
	}
}

// document returns the paths of resources and collects the schemas that they need in b.
func (b *schemas) document(resources []Resource) (map[string]any, error) {
	all := map[string]any{}
	for _, s := range resources {
		var err error
		if s.custom != nil {
			err = b.addCustom(s.custom)
		} else {
			err = b.addPaths(s, all)
		}
		if err != nil {
			return nil, fmt.Errorf("OpenAPI of %s: %w", s.gvr, err)
		}
	}
	return all, nil
}

func (b *schemas) addPaths(s Resource, all map[string]any) error {
	one, many, err := b.addResource(s)
	if err != nil {
		return err
	}
	if can := s.source.can(); can.update || can.delete {
		b.addType(metav1.DeleteOptions{})
		b.addType(metav1.Status{})
		b.addType(metav1.Patch{})
	}
	p := paths{s: s, b: b, one: one, many: many, all: all}
	p.add()
	return nil
}

func documentV3(resources []Resource, gv schema.GroupVersion, serverVersion string) (map[string]any, error) {
	b := newSchemas("#/components/schemas/", true)
	paths, err := b.document(resources)
	if err != nil {
		return nil, err
	}
	b.addType(metav1.APIResourceList{})
	paths["/apis/"+gv.String()+"/"] = map[string]any{"get": map[string]any{
		"description": "get available resources",
		"operationId": "get" + camel(gv.Group, gv.Version) + "APIResources",
		"tags":        []string{tag(gv)},
		"responses":   b.responses("get", b.refTo(metav1.APIResourceList{})),
	}}
	return map[string]any{
		"openapi":    "3.0.0",
		"info":       map[string]any{"title": "Extension API server", "version": serverVersion},
		"paths":      paths,
		"components": map[string]any{"schemas": b.models},
	}, nil
}

func documentV2(resources []Resource, serverVersion string) (map[string]any, error) {
	b := newSchemas("#/definitions/", false)
	paths, err := b.document(resources)
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"swagger":     "2.0",
		"info":        map[string]any{"title": "Extension API server", "version": serverVersion},
		"paths":       paths,
		"definitions": b.models,
	}, nil
}

func tag(gv schema.GroupVersion) string {
	return strings.ReplaceAll(strings.TrimSuffix(gv.Group, ".k8s.io"), ".", "_") + "_" + gv.Version
}

func camel(words ...string) string {
	var out strings.Builder
	for _, word := range words {
		for part := range strings.SplitSeq(strings.TrimSuffix(word, ".k8s.io"), ".") {
			if part != "" {
				out.WriteString(strings.ToUpper(part[:1]) + part[1:])
			}
		}
	}
	return out.String()
}

// paths builds the paths of one resource. Each operation carries its kind and its action. kubectl uses these, not the paths,
// to find the schema of a resource and the parameters that a write supports.
type paths struct {
	s    Resource
	b    *schemas
	one  map[string]any // reference to the kind
	many map[string]any // reference to its list kind
	all  map[string]any
}

func (p *paths) add() {
	base := "/apis/" + p.s.GroupVersion().String() + "/"
	name := p.b.parameter("name", "path", "string", "name of the "+p.s.kind.Kind, true)
	if !p.s.namespaced {
		p.collection(base+p.s.gvr.Resource, "", nil)
		p.item(base+p.s.gvr.Resource+"/{name}", "", []any{name})
		return
	}
	inNamespace := base + "namespaces/{namespace}/" + p.s.gvr.Resource
	namespace := p.b.parameter("namespace", "path", "string", "object name and auth scope, such as for teams and projects", true)
	p.all[base+p.s.gvr.Resource] = map[string]any{
		"get":        p.operation("list", "ForAllNamespaces", p.many),
		"parameters": p.listParameters(),
	}
	p.collection(inNamespace, "Namespaced", []any{namespace})
	p.item(inNamespace+"/{name}", "Namespaced", []any{name, namespace})
}

// collection adds the path of the collection.
func (p *paths) collection(path, scope string, parameters []any) {
	can := p.s.source.can()
	item := map[string]any{"get": p.operation("list", scope, p.many)}
	if !can.create && !can.delete {
		item["parameters"] = append(parameters, p.listParameters()...)
		p.all[path] = item
		return
	}
	// List parameters must not appear on create.
	item["get"].(map[string]any)["parameters"] = p.listParameters()
	if can.create {
		item["post"] = p.withBody(p.operation("post", scope, p.one), p.one, true, "*/*")
	}
	if can.delete {
		op := p.withBody(p.operation("deletecollection", scope, p.b.refTo(metav1.Status{})), p.b.refTo(metav1.DeleteOptions{}), false, "*/*")
		op["parameters"] = append(op["parameters"].([]any), p.selectors()...)
		item["delete"] = op
	}
	if len(parameters) > 0 {
		item["parameters"] = parameters
	}
	p.all[path] = item
}

// item adds the path of one object and the paths of its connect subresources.
func (p *paths) item(path, scope string, parameters []any) {
	can := p.s.source.can()
	item := map[string]any{"get": p.operation("get", scope, p.one), "parameters": parameters}
	if can.update {
		item["put"] = p.withBody(p.operation("put", scope, p.one), p.one, true, "*/*")
		item["patch"] = p.withBody(p.operation("patch", scope, p.one), p.b.refTo(metav1.Patch{}), true, mediaJSONPatch, mediaMergePatch)
	}
	if can.delete {
		item["delete"] = p.withBody(p.operation("delete", scope, p.b.refTo(metav1.Status{})), p.b.refTo(metav1.DeleteOptions{}), false, "*/*")
	}
	p.all[path] = item
	for _, sub := range p.s.subresources {
		connect := map[string]any{"parameters": parameters}
		for _, method := range []string{"get", "put", "post", "delete", "patch"} {
			op := p.operation("connect", scope, nil)
			op["operationId"] = "connect" + camel(method) + p.suffix(scope) + camel(sub)
			connect[method] = op
		}
		p.all[path+"/"+sub] = connect
	}
}

// actions maps x-kubernetes-action to the prefixes of operationId and description.
var actions = map[string]struct{ id, text string }{
	"list":             {"list", "list objects of kind "},
	"get":              {"read", "read the specified "},
	"post":             {"create", "create a "},
	"put":              {"replace", "replace the specified "},
	"patch":            {"patch", "partially update the specified "},
	"delete":           {"delete", "delete a "},
	"deletecollection": {"deleteCollection", "delete collection of "},
	"connect":          {"connect", "connect to "},
}

func (p *paths) suffix(scope string) string {
	if scope == "ForAllNamespaces" {
		return camel(p.s.gvr.Group, p.s.gvr.Version) + p.s.kind.Kind + scope
	}
	return camel(p.s.gvr.Group, p.s.gvr.Version) + scope + p.s.kind.Kind
}

func (p *paths) operation(action, scope string, answer map[string]any) map[string]any {
	return map[string]any{
		"description":                     actions[action].text + p.s.kind.Kind,
		"operationId":                     actions[action].id + p.suffix(scope),
		"tags":                            []string{tag(p.s.GroupVersion())},
		"responses":                       p.b.responses(action, answer),
		"x-kubernetes-action":             action,
		"x-kubernetes-group-version-kind": kindExtension(p.s.kind),
	}
}

// withBody adds a body and the write parameters to op. kubectl checks op for these parameters before it uses them.
func (p *paths) withBody(op, schema map[string]any, required bool, media ...string) map[string]any {
	parameters := []any{
		p.b.parameter("fieldManager", "query", "string", "Names the program that writes.", false),
		p.b.parameter("fieldValidation", "query", "string", "What is done about unknown and duplicate fields: Ignore, Warn or Strict.", false),
	}
	if p.s.dryRun {
		parameters = append(parameters, p.b.parameter("dryRun", "query", "string", "All: check everything and change nothing.", false))
	}
	if p.b.v3 {
		content := map[string]any{}
		for _, m := range media {
			content[m] = map[string]any{"schema": schema}
		}
		op["requestBody"] = map[string]any{"content": content, "required": required}
	} else {
		body := map[string]any{"name": "body", "in": "body", "schema": schema}
		if required {
			body["required"] = true
		}
		parameters = append(parameters, body)
		op["consumes"] = media
	}
	op["parameters"] = parameters
	return op
}

func kindExtension(k schema.GroupVersionKind) map[string]any {
	return map[string]any{"group": k.Group, "version": k.Version, "kind": k.Kind}
}

func (p *paths) selectors() []any {
	return []any{
		p.b.parameter("fieldSelector", "query", "string", "Restricts the answer to objects whose fields match.", false),
		p.b.parameter("labelSelector", "query", "string", "Restricts the answer to objects whose labels match.", false),
	}
}

func (p *paths) listParameters() []any {
	param := p.b.parameter
	return append(p.selectors(),
		param("limit", "query", "integer", "Cuts the answer after so many objects; continue asks for the rest.", false),
		param("continue", "query", "string", "The token of the answer before, to go on from there.", false),
		param("resourceVersion", "query", "string", "The version that the answer must at least have.", false),
		param("resourceVersionMatch", "query", "string", "How resourceVersion is meant: Exact or NotOlderThan.", false),
		param("sendInitialEvents", "query", "boolean", "Begins a watch with what exists.", false),
		param("allowWatchBookmarks", "query", "boolean", "Asks for BOOKMARK events.", false),
		param("timeoutSeconds", "query", "integer", "Ends a watch after this time.", false),
		param("watch", "query", "boolean", "Asks for changes instead of a list, where the resource can be watched.", false),
	)
}

// parameter returns one parameter in the syntax of the OpenAPI version.
func (b *schemas) parameter(name, in, kind, description string, required bool) map[string]any {
	p := map[string]any{"name": name, "in": in, "description": description}
	if b.v3 {
		p["schema"] = map[string]any{"type": kind, "uniqueItems": true}
	} else {
		p["type"], p["uniqueItems"] = kind, true
	}
	if required {
		p["required"] = true
	}
	return p
}

// responses returns the responses of an operation. A create can also return 201.
func (b *schemas) responses(action string, ref map[string]any) map[string]any {
	ok := map[string]any{"description": "OK"}
	if ref != nil {
		maps.Copy(ok, b.content(ref))
	}
	all := map[string]any{"200": ok, "401": map[string]any{"description": "Unauthorized"}}
	if action == "post" {
		created := maps.Clone(ok)
		created["description"] = "Created"
		all["201"] = created
	}
	return all
}

func (b *schemas) content(ref map[string]any) map[string]any {
	if !b.v3 {
		return map[string]any{"schema": ref}
	}
	content := map[string]any{}
	for _, media := range []string{respond.MediaJSON, respond.MediaYAML} {
		content[media] = map[string]any{"schema": ref}
	}
	return map[string]any{"content": content}
}
