package semantics

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// versioned is a definition of lamps in v1beta1 and v1, of which the latter is stored.
func versioned(name, more string) string {
	return strings.NewReplacer("NAME", name, "MORE", more).Replace(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.NAME.example.com}
spec: {group: NAME.example.com, scope: Cluster, names: {plural: lamps, singular: lamp, kind: Lamp},
  versions: [
    {name: v1beta1, served: true, storage: false, deprecated: true, deprecationWarning: "v1beta1 goes out; use v1",
     schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {watts: {type: integer}}}}}}},
    {name: v1, served: true, storage: true,
     schema: {openAPIV3Schema: {type: object, description: gives light, properties: {spec: {type: object, properties: {power: {type: integer, description: "in watts"}, watts: {type: integer}}}}}}}]MORE}`)
}

func lamps(group, version string) string {
	return "/apis/" + group + ".example.com/" + version + "/lamps"
}

// apiService returns the automanaged label and the priorities of an APIService, or "none".
func apiService(t *testing.T, name string) string {
	t.Helper()
	a := call(t, http.MethodGet, "/apis/apiregistration.k8s.io/v1/apiservices/"+name, nil).want(http.StatusOK, http.StatusNotFound)
	if a.code == http.StatusNotFound {
		return "none"
	}
	o := a.object()
	priority, _, _ := unstructured.NestedInt64(o.Object, "spec", "groupPriorityMinimum")
	order, _, _ := unstructured.NestedInt64(o.Object, "spec", "versionPriority")
	return fmt.Sprint(o.GetLabels()["kube-aggregator.kubernetes.io/automanaged"], " ", priority, " ", order)
}

func waitForAPIService(t *testing.T, name, want string) {
	t.Helper()
	eventually(t, func() error {
		if got := apiService(t, name); got != want {
			return fmt.Errorf("%s is %s, want %s", name, got, want)
		}
		return nil
	})
}

// Each version that is served shows all objects, has an APIService and a document, and loses them with being served.
func TestVersions(t *testing.T) {
	define(t, versioned("versions", ""))
	name := "lamps.versions.example.com"
	old := call(t, http.MethodPost, lamps("versions", "v1beta1"), []byte(`{"apiVersion":"versions.example.com/v1beta1","kind":"Lamp","metadata":{"name":"a"},"spec":{"watts":40}}`)).want(http.StatusCreated)
	if w := strings.Join(old.header.Values("Warning"), "; "); !strings.Contains(w, "v1beta1 goes out; use v1") {
		t.Errorf("warnings = %q, want the deprecation", w)
	}
	call(t, http.MethodGet, lamps("versions", "v1")+"/a", nil).want(http.StatusOK).says(`"apiVersion":"versions.example.com/v1"`).says(`"watts":40`)
	stored := func() string {
		crd := call(t, http.MethodGet, definitionsPath+"/"+name, nil).want(http.StatusOK).object()
		versions, _, _ := unstructured.NestedStringSlice(crd.Object, "status", "storedVersions")
		return strings.Join(versions, " ")
	}
	if s := stored(); s != "v1" {
		t.Errorf("stored versions = %s, want v1", s)
	}
	for _, v := range []string{"v1", "v1beta1"} {
		waitForAPIService(t, v+".versions.example.com", "true 1000 100")
	}
	var group struct {
		PreferredVersion struct {
			Version string `json:"version"`
		} `json:"preferredVersion"`
	}
	eventually(t, func() error { // documents follow the registration
		a := call(t, http.MethodGet, "/apis/versions.example.com", nil)
		if a.code != http.StatusOK {
			return errText(a.head())
		}
		if a.into(&group); group.PreferredVersion.Version != "v1" {
			return fmt.Errorf("prefers %s", group.PreferredVersion.Version)
		}
		return nil
	})
	// The storage version changes. The old version stays in the list of stored versions until a client removes it, and its
	// objects stay readable.
	edit(t, name, `[{"op":"replace","path":"/spec/versions/0/storage","value":true},{"op":"replace","path":"/spec/versions/1/storage","value":false}]`)
	eventually(t, func() error {
		if s := stored(); s != "v1 v1beta1" {
			return fmt.Errorf("stored %s", s)
		}
		return nil
	})
	edit(t, name, `[{"op":"replace","path":"/spec/versions/1/served","value":false}]`)
	waitForAPIService(t, "v1.versions.example.com", "none")
	eventually(t, func() error {
		if a := call(t, http.MethodGet, lamps("versions", "v1"), nil); a.code != http.StatusNotFound {
			return fmt.Errorf("v1: %d", a.code)
		}
		return nil
	})
	call(t, http.MethodGet, lamps("versions", "v1beta1")+"/a", nil).want(http.StatusOK).says(`"watts":40`)
	removed := call(t, http.MethodPatch, definitionsPath+"/"+name, []byte(`[{"op":"remove","path":"/spec/versions/1"}]`), "Content-Type", jsonPatch)
	removed.says("status.storedVersions").refused(http.StatusUnprocessableEntity, "Invalid")
	call(t, http.MethodDelete, definitionsPath+"/"+name, nil).want(http.StatusOK)
	waitForAPIService(t, "v1beta1.versions.example.com", "none")
}

// An APIService of an administrator, and with it the group-version, is not changed by a definition.
func TestAPIServiceOfPeople(t *testing.T) {
	const path = "/apis/apiregistration.k8s.io/v1/apiservices"
	body := `{"metadata":{"name":"v1.people.example.com"},"spec":{"group":"people.example.com","version":"v1","groupPriorityMinimum":7,"versionPriority":7,"service":{"namespace":"nowhere","name":"none"}}}`
	call(t, http.MethodPost, path, []byte(body)).want(http.StatusCreated)
	post(t, definitionsPath, []byte(custom("people", "{type: object}", ""))).want(http.StatusCreated)
	t.Cleanup(func() {
		call(t, http.MethodDelete, definitionsPath+"/things.people.example.com", nil).want(http.StatusOK)
	})
	waitForCondition(t, "things.people.example.com", "Established", "True InitialNamesAccepted")
	call(t, http.MethodGet, things("people"), nil).want(http.StatusServiceUnavailable)
	if got := apiService(t, "v1.people.example.com"); got != " 7 7" {
		t.Errorf("APIService = %q, want \" 7 7\"", got)
	}
	call(t, http.MethodDelete, path+"/v1.people.example.com", nil).want(http.StatusOK)
	waitForAPIService(t, "v1.people.example.com", "true 1000 100")
	eventually(t, func() error {
		if a := call(t, http.MethodGet, things("people"), nil); a.code != http.StatusOK {
			return fmt.Errorf("%d %s", a.code, a.head())
		}
		return nil
	})
}

// The OpenAPI documents of both versions contain the kinds of definitions, and lose them with the definitions.
func TestOpenAPIOfCustomResources(t *testing.T) {
	define(t, versioned("described", ""))
	const path = "apis/described.example.com/v1"
	inV3 := func() (url string) {
		var index struct {
			Paths map[string]struct {
				URL string `json:"serverRelativeURL"`
			} `json:"paths"`
		}
		call(t, http.MethodGet, "/openapi/v3", nil).want(http.StatusOK).into(&index)
		return index.Paths[path].URL
	}
	var url string
	eventually(t, func() error {
		if url = inV3(); url == "" {
			return errText("not in the index")
		}
		return nil
	})
	document := call(t, http.MethodGet, url, nil).want(http.StatusOK).says("gives light").says(`/apis/described.example.com/v1/lamps/{name}`)
	if cache := document.header.Get("Cache-Control"); !strings.Contains(cache, "immutable") {
		t.Errorf("Cache-Control = %q, want immutable", cache)
	}
	call(t, http.MethodGet, "/openapi/v3/"+path, nil, "If-None-Match", document.header.Get("ETag")).want(http.StatusNotModified)
	inV2 := func() map[string]any {
		var whole struct {
			Paths       map[string]any            `json:"paths"`
			Definitions map[string]map[string]any `json:"definitions"`
		}
		call(t, http.MethodGet, "/openapi/v2", nil).want(http.StatusOK).into(&whole)
		if whole.Paths["/api/v1/configmaps"] == nil {
			t.Error("OpenAPI v2 has no path of ConfigMaps, want it")
		}
		_, described := whole.Paths["/"+path+"/lamps/{name}"]
		if definition := whole.Definitions["com.example.described.v1.Lamp"]; described != (definition != nil) {
			t.Errorf("OpenAPI v2: path = %v, definition = %v; want both or neither", described, definition)
		} else if described {
			return definition
		}
		return nil
	}
	var lamp map[string]any
	eventually(t, func() error { // the two versions are published one after the other
		if lamp = inV2(); lamp == nil {
			return errText("version 2 does not have it")
		}
		return nil
	})
	if lamp["description"] != "gives light" {
		t.Fatalf("definition in OpenAPI v2 = %v, want its description", lamp)
	}
	power, _, _ := unstructured.NestedString(lamp, "properties", "spec", "properties", "power", "description")
	kinds, _, _ := unstructured.NestedSlice(lamp, "x-kubernetes-group-version-kind")
	if power != "in watts" || !slices.ContainsFunc(kinds, func(k any) bool { return k.(map[string]any)["kind"] == "Lamp" }) {
		t.Errorf("definition in OpenAPI v2 = %v, want the field and the kind", lamp)
	}
	if ref, _, _ := unstructured.NestedString(lamp, "properties", "metadata", "$ref"); ref != "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta" {
		t.Errorf("metadata of the definition = %s, want the reference to ObjectMeta", ref)
	}
	edit(t, "lamps.described.example.com", `[{"op":"replace","path":"/spec/versions/1/schema/openAPIV3Schema/description","value":"gives more light"}]`)
	eventually(t, func() error {
		if d := inV2()["description"]; d != "gives more light" {
			return fmt.Errorf("version 2 says %v", d)
		}
		if a := call(t, http.MethodGet, "/openapi/v3/"+path, nil); !strings.Contains(string(a.body), "gives more light") {
			return errText("version 3 says " + a.head())
		}
		return nil
	})
	call(t, http.MethodDelete, definitionsPath+"/lamps.described.example.com", nil).want(http.StatusOK)
	eventually(t, func() error {
		if inV2() != nil || inV3() != "" {
			return errText("it is still described")
		}
		return nil
	})
}
