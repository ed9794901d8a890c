package openapidocs

import (
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/util/proto"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

func each(t *testing.T, test func(t *testing.T, d Document, body []byte, parsed *spec3.OpenAPI)) {
	t.Helper()
	if len(Documents()) == 0 {
		t.Fatal("Documents() is empty, want documents")
	}
	for _, d := range Documents() {
		t.Run(d.Path, func(t *testing.T) {
			body, err := d.JSON()
			if err != nil {
				t.Fatal(err)
			}
			var parsed spec3.OpenAPI
			if err := json.Unmarshal(body, &parsed); err != nil {
				t.Fatal(err)
			}
			test(t, d, body, &parsed)
		})
	}
}

func TestDocumentHashesMatchTheirContent(t *testing.T) {
	each(t, func(t *testing.T, d Document, body []byte, _ *spec3.OpenAPI) {
		if got := fmt.Sprintf("%X", sha512.Sum512(body)); got != d.Hash {
			t.Errorf("hash of the document %s = %s, want %s", d.Path, d.Hash, got)
		}
	})
}

func TestDocumentsDescribeOnlyTheirGroupVersion(t *testing.T) {
	each(t, func(t *testing.T, d Document, _ []byte, parsed *spec3.OpenAPI) {
		for path := range parsed.Paths.Paths {
			if !strings.HasPrefix(path, "/"+d.Path+"/") {
				t.Errorf("the document of %s describes %s, want only paths of the group-version", d.Path, path)
			}
		}
	})
}

// kubectl explain fails at a reference to an undefined schema.
func TestSchemaReferencesAreDefined(t *testing.T) {
	each(t, func(t *testing.T, _ Document, body []byte, parsed *spec3.OpenAPI) {
		const prefix = "#/components/schemas/"
		for rest := string(body); ; {
			_, after, found := strings.Cut(rest, `"$ref":"`)
			if !found {
				return
			}
			ref, remaining, _ := strings.Cut(after, `"`)
			if _, ok := parsed.Components.Schemas[strings.TrimPrefix(ref, prefix)]; !ok {
				t.Errorf("the reference %s is not defined, want a schema", ref)
			}
			rest = remaining
		}
	})
}

func TestDocumentsHaveTheFieldsKubectlReads(t *testing.T) {
	documents := map[string]*spec3.OpenAPI{}
	each(t, func(t *testing.T, d Document, body []byte, parsed *spec3.OpenAPI) {
		documents[d.Path] = parsed
		if _, err := handler3.ToV3ProtoBinary(body); err != nil {
			t.Errorf("ToV3ProtoBinary failed: %v, want no error", err)
		}
	})
	for path, c := range map[string]struct{ document, kind, schema string }{
		"/api/v1/namespaces/{namespace}/configmaps/{name}": {"api/v1", `[{"group":"","kind":"ConfigMap","version":"v1"}]`, "io.k8s.api.core.v1.ConfigMap"},
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}": {
			"apis/rbac.authorization.k8s.io/v1", `[{"group":"rbac.authorization.k8s.io","kind":"ClusterRole","version":"v1"}]`, "io.k8s.api.rbac.v1.ClusterRole",
		},
		"/apis/apiregistration.k8s.io/v1/apiservices/{name}": {
			"apis/apiregistration.k8s.io/v1", `[{"group":"apiregistration.k8s.io","kind":"APIService","version":"v1"}]`, "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIService",
		},
	} {
		document := documents[c.document]
		item, ok := document.Paths.Paths[path]
		if !ok {
			t.Fatalf("%s is not described, want a path in %s", path, c.document)
		}
		for action, operation := range map[string]*spec3.Operation{"get": item.Get, "put": item.Put, "patch": item.Patch, "delete": item.Delete} {
			if got := operation.Extensions["x-kubernetes-action"]; got != action {
				t.Errorf("%s: action of %s = %v, want %s", path, action, got, action)
			}
			kind, err := json.Marshal([]any{operation.Extensions["x-kubernetes-group-version-kind"]})
			if err != nil || string(kind) != c.kind {
				t.Errorf("%s: kind of %s = %s, want %s", path, action, kind, c.kind)
			}
		}
		var types []string
		for mediaType := range item.Patch.RequestBody.Content {
			types = append(types, mediaType)
		}
		for _, want := range []string{"application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"} {
			if !slices.Contains(types, want) {
				t.Errorf("%s: media types of patch = %v, want %s among them", path, types, want)
			}
		}
		var parameters []string
		for _, p := range item.Patch.Parameters {
			parameters = append(parameters, p.Name)
		}
		// kubectl does not use server-side validation if a patch lacks this parameter.
		if !slices.Contains(parameters, "fieldValidation") {
			t.Errorf("%s: parameters of patch = %v, want fieldValidation among them", path, parameters)
		}
		kind, err := json.Marshal(document.Components.Schemas[c.schema].Extensions["x-kubernetes-group-version-kind"])
		if err != nil || string(kind) != c.kind {
			t.Errorf("kind of %s = %s, want %s", c.schema, kind, c.kind)
		}
	}
}

func TestVersion2(t *testing.T) {
	d := Swagger()
	body, err := d.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%X", sha512.Sum512(body)); got != d.Hash {
		t.Errorf("hash of the document of version 2 = %s, want %s", d.Hash, got)
	}
	var parsed spec.Swagger
	if err := json.Unmarshal(body, &parsed); err != nil {
		t.Fatal(err)
	}
	described := 0
	each(t, func(t *testing.T, _ Document, _ []byte, three *spec3.OpenAPI) {
		for path := range three.Paths.Paths {
			if _, ok := parsed.Paths.Paths[path]; !ok {
				t.Errorf("%s is in version 3 only, want it in version 2", path)
			}
			described++
		}
	})
	if len(parsed.Paths.Paths) != described {
		t.Errorf("version 2 has %d paths, want %d as in version 3", len(parsed.Paths.Paths), described)
	}
	if strings.Contains(string(body), `"default":`+`""`) {
		t.Error("version 2 contains an empty default, want defaults omitted")
	}
	document, err := openapi_v2.ParseDocument(body)
	if err != nil {
		t.Fatalf("ParseDocument failed: %v, want no error", err)
	}
	models, err := proto.NewOpenAPIData(document)
	if err != nil {
		t.Fatalf("NewOpenAPIData, as in kubectl, failed: %v, want no error", err)
	}
	for _, name := range []string{"io.k8s.api.core.v1.ConfigMap", "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIService"} {
		if models.LookupModel(name) == nil {
			t.Errorf("%s is not described, want a model", name)
		}
	}
}

func TestOptInDocumentsHaveSamePathsInBothVersions(t *testing.T) {
	if len(OptIn()) == 0 {
		t.Fatal("OptIn() is empty, want documents")
	}
	for _, d := range OptIn() {
		var three spec3.OpenAPI
		var two spec.Swagger
		for _, version := range []struct {
			Document
			parsed any
		}{{d.Document, &three}, {d.Swagger, &two}} {
			body := mustJSON(t, version.Document)
			if got := fmt.Sprintf("%X", sha512.Sum512(body)); got != version.Hash {
				t.Errorf("hash of a document of %s = %s, want %s", d.Path, got, version.Hash)
			}
			if err := json.Unmarshal(body, version.parsed); err != nil {
				t.Fatal(err)
			}
		}
		got, want := slices.Sorted(maps.Keys(two.Paths.Paths)), slices.Sorted(maps.Keys(three.Paths.Paths))
		if !slices.Equal(got, want) || !strings.HasPrefix(got[0], "/"+d.Path+"/") {
			t.Errorf("version 2 of %s has the paths %q, want %q as in version 3", d.Path, got, want)
		}
		if _, err := openapi_v2.ParseDocument(mustJSON(t, d.Swagger)); err != nil {
			t.Errorf("ParseDocument of %s failed: %v, want no error", d.Path, err)
		}
	}
}

func mustJSON(t *testing.T, d Document) []byte {
	t.Helper()
	body, err := d.JSON()
	if err != nil {
		t.Fatal(err)
	}
	return body
}
