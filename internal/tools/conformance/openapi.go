package conformance

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func openAPIChecks() []check {
	return []check{
		{id: "openapi/v3", expected: "/openapi/v3 lists a document of OpenAPI 3 that has every kind, marked by x-kubernetes-group-version-kind",
			reason: "KEP-2896: kubectl explain and validation and server-side apply look kinds up by that mark", run: kindsInV3},
		{id: "openapi/paths", expected: "the document has the path of every resource",
			reason: "kubectl explain finds the schema of a resource by its path", run: onV3(pathsInV3)},
		{id: "openapi/references", expected: "every $ref in the document leads somewhere",
			reason: "one that does not breaks the parser of who reads the document, and the merged documents with it (kubernetes-sigs/metrics-server#1868)", run: onV3(referencesInV3)},
		{id: "openapi/etag", expected: "the document has an ETag, and 304 is the answer to who has that",
			reason: "front doors fetch it again and again", run: onV3(tagOfV3)},
		{id: "openapi/v2", expected: "/openapi/v2 is a Swagger 2.0 document that has every kind, and whose references lead somewhere",
			reason: "older clients validate by it, and front doors merge it into theirs", run: openAPIV2},
	}
}

// document contains the fields of an OpenAPI document that are checked, for both versions.
type document struct {
	OpenAPI     string                     `json:"openapi"`
	Swagger     string                     `json:"swagger"`
	Paths       map[string]json.RawMessage `json:"paths"`
	Definitions map[string]schemaMarks     `json:"definitions"`
	Components  struct {
		Schemas map[string]schemaMarks `json:"schemas"`
	} `json:"components"`
}

type schemaMarks struct {
	Kinds []schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
}

// onV3 passes the document of the group-version and its response to f. The first check reports a missing document.
func onV3(f func(context.Context, *examination, answer, document) verdict) func(context.Context, *examination) verdict {
	return func(ctx context.Context, x *examination) verdict {
		a, d, v := x.v3(ctx)
		if v.outcome != Pass {
			return notApplicable("there is no document to look at")
		}
		return f(ctx, x, a, d)
	}
}

func (x *examination) v3(ctx context.Context) (a answer, d document, v verdict) {
	var index struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	a = x.ask.get(ctx, "/openapi/v3")
	if a.is(http.StatusNotFound) {
		return a, d, warned("there is no /openapi/v3: front doors convert what /openapi/v2 says, and lose some of it")
	}
	if err := a.into(&index); err != nil {
		return a, d, failed("%v", err)
	}
	entry, listed := index.Paths[strings.TrimPrefix(x.root(), "/")]
	if !listed {
		return a, d, failed("/openapi/v3 does not list %s", strings.TrimPrefix(x.root(), "/"))
	}
	where, err := url.Parse(entry.ServerRelativeURL)
	if err != nil {
		return a, d, failed("/openapi/v3 lists the URL %q", entry.ServerRelativeURL)
	}
	a = x.ask.do(ctx, question{path: where.Path, query: where.Query()})
	if err := a.into(&d); err != nil {
		return a, d, failed("%v", err)
	}
	if !strings.HasPrefix(d.OpenAPI, "3.") {
		return a, d, failed("the document calls itself OpenAPI %q", d.OpenAPI)
	}
	return a, d, ok
}

func kindsInV3(ctx context.Context, x *examination) verdict {
	_, d, v := x.v3(ctx)
	if v.outcome != Pass {
		return v
	}
	return x.kinds(d.Components.Schemas)
}

// kinds checks that the schemas include the kinds of discovery.
func (x *examination) kinds(schemas map[string]schemaMarks) verdict {
	marked := map[schema.GroupVersionKind]bool{}
	for _, s := range schemas {
		for _, gvk := range s.Kinds {
			marked[gvk] = true
		}
	}
	var missing []string
	for _, r := range x.resources {
		gvk := x.gv.WithKind(r.Kind)
		if r.Group != "" || r.Version != "" {
			gvk.Group, gvk.Version = r.Group, r.Version
		}
		if answers(r) && !marked[gvk] && !slices.Contains(missing, gvk.Kind) {
			missing = append(missing, gvk.Kind)
		}
	}
	if len(missing) > 0 {
		return failed("no schema is marked as %s", strings.Join(missing, ", "))
	}
	return ok
}

// answers reports whether a resource has objects to describe. Some resources exist only for permissions (use, bind).
func answers(r metav1.APIResource) bool { return can(r, "get") || can(r, "list") || can(r, "create") }

func pathsInV3(_ context.Context, x *examination, _ answer, d document) verdict {
	for _, r := range x.resources {
		if !answers(r) {
			continue
		}
		found := slices.ContainsFunc([]string{
			x.path(r, ""), x.path(r, "{namespace}"), x.path(r, "") + "/{name}", x.path(r, "{namespace}") + "/{name}",
		}, func(p string) bool { return d.Paths[p] != nil })
		if !found {
			return failed("no path of %s is there", r.Name)
		}
	}
	return ok
}

func referencesInV3(_ context.Context, _ *examination, a answer, d document) verdict {
	return references(a.body, "#/components/schemas/", d.Components.Schemas)
}

// references checks that every reference in body resolves.
func references(body []byte, prefix string, schemas map[string]schemaMarks) verdict {
	var whole any
	if err := json.Unmarshal(body, &whole); err != nil {
		return failed("the document is not JSON: %v", err)
	}
	if lost := lostReference(whole, prefix, schemas); lost != "" {
		return failed("%s leads nowhere", lost)
	}
	return ok
}

func lostReference(in any, prefix string, schemas map[string]schemaMarks) string {
	switch v := in.(type) {
	case map[string]any:
		if ref, is := v["$ref"].(string); is {
			name, local := strings.CutPrefix(ref, prefix)
			if _, known := schemas[name]; local && !known {
				return ref
			}
		}
		for _, inner := range v {
			if lost := lostReference(inner, prefix, schemas); lost != "" {
				return lost
			}
		}
	case []any:
		for _, inner := range v {
			if lost := lostReference(inner, prefix, schemas); lost != "" {
				return lost
			}
		}
	}
	return ""
}

func tagOfV3(ctx context.Context, x *examination, a answer, _ document) verdict {
	return revalidation(ctx, x, a)
}

func openAPIV2(ctx context.Context, x *examination) verdict {
	a := x.ask.get(ctx, "/openapi/v2")
	if a.is(http.StatusNotFound) {
		return warned("there is no /openapi/v2")
	}
	var d document
	if err := a.into(&d); err != nil {
		return failed("%v", err)
	}
	if d.Swagger != "2.0" {
		return failed("the document calls itself Swagger %q", d.Swagger)
	}
	if v := x.kinds(d.Definitions); v.outcome == Fail {
		return v
	}
	v := references(a.body, "#/definitions/", d.Definitions)
	if v.outcome == Fail && !x.directly {
		return warned("in the document that the API server merged, %s", v.detail)
	}
	return v
}
