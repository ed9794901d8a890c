package semantics

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/yaml"
)

// everyKind is the namespace of the objects of TestEveryKind: the samples' namespace.
const everyKind = "ns"

// kind is a resource with the verbs create and list, with its discovery document.
type kind struct {
	sample
	groupVersion string
	discovered   apidiscoveryv2.APIResourceDiscovery
	namespace    string // "" for a cluster-scoped one
}

func (k kind) id() string { return k.groupVersion + "/" + k.discovered.Resource }

// custom reports whether the kind has a definition.
func (k kind) custom() bool { return k.groupVersion == "every.example.com/v1" }

// inProtobuf reports whether the kind has a protobuf form. Custom resources and kinds outside Kubernetes have none.
func (k kind) inProtobuf() bool {
	return !k.custom() && !strings.Contains(k.groupVersion, ".portico.dev/")
}

// collection is the path of the objects of the namespace, or of all.
func (k kind) collection() string {
	path := "/apis/" + k.groupVersion
	if k.groupVersion == "v1" {
		path = "/api/v1"
	}
	if k.namespace != "" {
		path += "/namespaces/" + k.namespace
	}
	return path + "/" + k.discovered.Resource
}

func (k kind) path(of *unstructured.Unstructured) string { return k.collection() + "/" + of.GetName() }

// object returns a sample with the name, or with a name that contains it.
func (k kind) object(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(k.text), &o.Object); err != nil {
		t.Fatalf("sample of %s: %v, want valid YAML", k.id(), err)
	}
	o.SetAPIVersion(k.groupVersion)
	o.SetKind(k.discovered.ResponseKind.Kind)
	o.SetName(name)
	if k.rename != nil {
		k.rename(o, name)
	}
	return o
}

// create creates an object of the sample, which is deleted at the end of the test.
func (k kind) create(t *testing.T, name string, change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	t.Helper()
	o := k.object(t, name)
	for _, f := range change {
		f(o)
	}
	created := call(t, http.MethodPost, k.collection()+"?fieldManager=creator", encode(t, o)).want(http.StatusCreated).object()
	t.Cleanup(func() {
		call(t, http.MethodPatch, k.path(o), []byte(`{"metadata":{"finalizers":null}}`), "Content-Type", "application/merge-patch+json").
			want(http.StatusOK, http.StatusNotFound, http.StatusConflict)
		call(t, http.MethodDelete, k.path(o), nil).want(http.StatusOK, http.StatusAccepted, http.StatusNotFound, http.StatusConflict)
	})
	return created
}

func (k kind) get(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	return call(t, http.MethodGet, k.path(o), nil).want(http.StatusOK).object()
}

// gone waits until an object does not exist any more.
func (k kind) gone(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	eventually(t, func() error {
		if a := call(t, http.MethodGet, k.path(o), nil); a.code != http.StatusNotFound {
			return fmt.Errorf("%s is there: %s", k.path(o), a.head())
		}
		return nil
	})
}

// kinds returns all kinds that the front door serves. Read-only resources and reviews are excluded.
func kinds(t *testing.T) []kind {
	t.Helper()
	remote := remoteGroupVersions(t)
	var all []kind
	for _, path := range []string{"/api", "/apis"} {
		var list apidiscoveryv2.APIGroupDiscoveryList
		call(t, http.MethodGet, path, nil, "Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList").
			want(http.StatusOK).into(&list)
		for _, group := range list.Items {
			for _, version := range group.Versions {
				gv := strings.TrimPrefix(group.Name+"/"+version.Version, "/")
				if remote[gv] {
					continue
				}
				for _, r := range version.Resources {
					if slices.Contains(r.Verbs, "create") && slices.Contains(r.Verbs, "list") {
						all = append(all, newKind(gv, r))
					}
				}
			}
		}
	}
	return all
}

func newKind(gv string, r apidiscoveryv2.APIResourceDiscovery) kind {
	k := kind{groupVersion: gv, discovered: r, sample: sampleOf(gv, r.Resource)}
	if r.Scope == apidiscoveryv2.ScopeNamespace {
		k.namespace = everyKind
	}
	return k
}

func remoteGroupVersions(t *testing.T) map[string]bool {
	t.Helper()
	var list apiregistrationv1.APIServiceList
	call(t, http.MethodGet, "/apis/apiregistration.k8s.io/v1/apiservices", nil).want(http.StatusOK).into(&list)
	remote := map[string]bool{}
	for _, s := range list.Items {
		if s.Spec.Service != nil {
			remote[s.Spec.Group+"/"+s.Spec.Version] = true
		}
	}
	return remote
}

// define creates a definition and waits until it is served and in discovery.
func define(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	created := call(t, http.MethodPost, definitions, []byte(text), "Content-Type", mediaYAML).want(http.StatusCreated).object()
	t.Cleanup(func() {
		call(t, http.MethodDelete, definitions+"/"+created.GetName(), nil).want(http.StatusOK, http.StatusNotFound)
	})
	group, _, _ := unstructured.NestedString(created.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(created.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(created.Object, "spec", "versions")
	eventually(t, func() error {
		for _, v := range versions {
			version := v.(map[string]any)
			path := "/apis/" + group + "/" + version["name"].(string)
			if version["served"] != true {
				continue
			}
			var list metav1.APIResourceList
			a := call(t, http.MethodGet, path, nil)
			if a.code == http.StatusOK {
				a.into(&list)
			}
			if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == plural }) {
				return fmt.Errorf("%s has no %s", path, plural)
			}
			if a := call(t, http.MethodGet, path+"/"+plural, nil); a.code != http.StatusOK {
				return fmt.Errorf("%s: %s", plural, a.head())
			}
			// The merged document is updated shortly after the group-version's document, as at kube-apiserver.
			if id := group + "/" + version["name"].(string) + "/" + plural; !slices.ContainsFunc(kinds(t), func(k kind) bool { return k.id() == id }) {
				return fmt.Errorf("/apis has no %s", id)
			}
		}
		return nil
	})
	return created
}

func makeNamespace(t *testing.T, name string) {
	t.Helper()
	body := encode(t, map[string]any{"metadata": map[string]any{"name": name}})
	call(t, http.MethodPost, "/api/v1/namespaces", body).want(http.StatusCreated)
}

// verbs of a kind. Namespaces are not deleted as a collection, here as at kube-apiserver.
var verbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// TestEveryKind takes every kind through the same cycle.
func TestEveryKind(t *testing.T) {
	makeNamespace(t, everyKind)
	for _, text := range definitions {
		define(t, text)
	}
	found := map[string]bool{}
	all := kinds(t)
	t.Run("kinds", func(t *testing.T) {
		for _, k := range all {
			found[k.id()] = true
			t.Run(k.id(), func(t *testing.T) {
				if k.text == "" {
					t.Fatal("the kind has no sample, want one: add it to the descriptor of the kind")
				}
				want := slices.Clone(verbs)
				if k.id() == "v1/namespaces" {
					want = slices.DeleteFunc(want, func(v string) bool { return v == "deletecollection" })
				}
				if got := slices.Sorted(slices.Values(k.discovered.Verbs)); !slices.Equal(got, want) {
					t.Errorf("verbs %v, want %v", got, want)
				}
				t.Parallel()
				for _, name := range slices.Sorted(maps.Keys(cycle)) {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						cycle[name](t, k)
					})
				}
			})
		}
	})
	for _, need := range []string{"v1/configmaps", "every.example.com/v1/boats", "every.example.com/v1/ports"} {
		if !found[need] {
			t.Errorf("discovery has no %s, want it", need)
		}
	}
}

// cycle contains the checks for every kind.
var cycle = map[string]func(*testing.T, kind){
	"create":           createAndRead,
	"generateName":     generateName,
	"list":             listAndSelect,
	"watch":            watchFromAVersion,
	"watch initially":  watchInitialEvents,
	"update":           update,
	"dry run":          dryRun,
	"unknown fields":   unknownFields,
	"patch":            patch,
	"apply":            apply,
	"finalizer":        finalizer,
	"delete":           deleteWithPreconditions,
	"deletecollection": deleteCollection,
	"table":            table,
	"metadata":         partialMetadata,
	"media":            mediaTypes,
	"subresources":     subresources,
}
