package coreapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
)

// twoVersions stores v1 and also serves v1beta1, which is converted by changing apiVersion.
const twoVersions = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.light.example.com}
spec:
  group: light.example.com
  scope: Cluster
  names: {plural: lamps, singular: lamp, kind: Lamp}
  versions:
  - name: v1beta1
    served: true
    storage: false
    deprecated: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {watts: {type: integer}}}}}}
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {watts: {type: integer}, colour: {type: string, default: warm}}}}}}
`

func (s *crdServer) crd(t *testing.T, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	t.Helper()
	return s.definitions.ApiextensionsV1().CustomResourceDefinitions().Get(within(t), name, metav1.GetOptions{})
}

func (s *crdServer) document(path string) string {
	for _, d := range s.Documents() {
		if d.Path == path {
			r, err := gzip.NewReader(bytes.NewReader(d.Packed))
			if err != nil {
				return err.Error()
			}
			body, err := io.ReadAll(r)
			if err != nil {
				return err.Error()
			}
			return string(body)
		}
	}
	return ""
}

func TestDefinitionLifecycle(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	s := startCRDServer(t)
	namespace(t, s.typed(t, admin), "work")
	s.define(t, boats)
	fleet := s.dynamic.Resource(boatsV1).Namespace("work")
	ctx := within(t)
	legacy, err := discovery.NewDiscoveryClientForConfig(s.ClientConfig(admin))
	if err != nil {
		t.Fatal(err)
	}

	t.Run("its conditions say that it is served", func(t *testing.T) {
		crd, err := s.crd(t, "boats.sea.example.com")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []apiextensionsv1.CustomResourceDefinitionConditionType{apiextensionsv1.NamesAccepted, apiextensionsv1.Established} {
			if !slices.ContainsFunc(crd.Status.Conditions, func(got apiextensionsv1.CustomResourceDefinitionCondition) bool {
				return got.Type == c && got.Status == apiextensionsv1.ConditionTrue
			}) {
				t.Errorf("condition %s is not True, want True: %v", c, crd.Status.Conditions)
			}
		}
	})
	t.Run("discovery has its resource", func(t *testing.T) {
		groups := s.Discovery().Groups
		at := slices.IndexFunc(groups, func(g groupDiscovery) bool { return g.Name == "sea.example.com" })
		if at < 0 || groups[at].Versions[0].Resources[0].Resource != "boats" || len(groups[at].Versions[0].Resources[0].Subresources) != 2 {
			t.Fatalf("discovered groups = %v, want sea.example.com with boats and 2 subresources", groups)
		}
		list, err := legacy.ServerResourcesForGroupVersion("sea.example.com/v1")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, r := range list.APIResources {
			names = append(names, r.Name)
		}
		if want := []string{"boats", "boats/status", "boats/scale"}; !slices.Equal(names, want) {
			t.Fatalf("resources = %v, want %v", names, want)
		}
		if hash := list.APIResources[0].StorageVersionHash; hash == "" {
			t.Error("storageVersionHash is empty, want a hash")
		}
	})
	t.Run("its document follows its schema", func(t *testing.T) {
		path := "apis/sea.example.com/v1"
		s.eventually(t, "a document", func() bool { return strings.Contains(s.document(path), `"sails"`) })
		if body := s.document(path); !json.Valid([]byte(body)) || !strings.Contains(body, "com.example.sea.v1.Boat") {
			t.Fatalf("OpenAPI document = %s, want JSON that contains com.example.sea.v1.Boat", body)
		}
		patch := []byte(`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/anchor","value":{"type":"string"}}]`)
		if _, err := s.definitions.ApiextensionsV1().CustomResourceDefinitions().Patch(ctx, "boats.sea.example.com", types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		s.eventually(t, "the new field", func() bool { return strings.Contains(s.document(path), `"anchor"`) })
	})
	t.Run("other definitions may not take its names", func(t *testing.T) {
		rival := strings.NewReplacer("plural: boats", "plural: rafts", "boats.sea", "rafts.sea", "singular: boat", "singular: raft").Replace(boats)
		if _, err := s.definitions.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, definition(t, rival), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		poll(t, "a conflict of names", func(context.Context) bool {
			crd, err := s.crd(t, "rafts.sea.example.com")
			return err == nil && slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
				return c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse
			})
		})
		err := s.dynamic.Resource(boatsV1.GroupVersion().WithResource("rafts")).Delete(ctx, "x", metav1.DeleteOptions{})
		if !apierrors.IsNotFound(err) {
			t.Fatalf("delete of a raft: error = %v, want NotFound, because the definition is not served", err)
		}
		// Otherwise the definition would get the names after boats is deleted.
		if err := s.definitions.ApiextensionsV1().CustomResourceDefinitions().Delete(ctx, "rafts.sea.example.com", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		poll(t, "the rival goes", func(context.Context) bool {
			_, err := s.crd(t, "rafts.sea.example.com")
			return apierrors.IsNotFound(err)
		})
	})
	t.Run("it waits for the finalizers of its objects, and takes everything along", func(t *testing.T) {
		held := boat(t, "held", "{crew: 1}")
		held.SetFinalizers([]string{"example.com/rope"})
		for _, o := range []*unstructured.Unstructured{held, boat(t, "loose", "{crew: 1}")} {
			if _, err := fleet.Create(ctx, o, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.definitions.ApiextensionsV1().CustomResourceDefinitions().Delete(ctx, "boats.sea.example.com", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		poll(t, "the loose object goes", func(ctx context.Context) bool {
			list, err := fleet.List(ctx, metav1.ListOptions{})
			return err == nil && len(list.Items) == 1 && list.Items[0].GetDeletionTimestamp() != nil
		})
		if _, err := fleet.Create(ctx, boat(t, "late", "{crew: 1}"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("create while the definition is deleted: error = %v, want Forbidden", err)
		}
		if _, err := fleet.Patch(ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		s.eventually(t, "discovery forgets it", func() bool { return !s.GroupVersions().Has(boatsV1.GroupVersion()) })
		s.eventually(t, "its document goes", func() bool { return s.document("apis/sea.example.com/v1") == "" })
		if _, err := s.crd(t, "boats.sea.example.com"); !apierrors.IsNotFound(err) {
			t.Errorf("GET of the deleted definition: error = %v, want NotFound", err)
		}
		if _, err := fleet.List(ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("list of objects of the deleted definition: error = %v, want NotFound", err)
		}
		if _, err := legacy.ServerResourcesForGroupVersion("sea.example.com/v1"); !apierrors.IsNotFound(err) {
			t.Errorf("discovery of the deleted group-version: error = %v, want NotFound", err)
		}
		left, err := s.store.Client().Client.Get(ctx, "/registry/sea.example.com/boats/work/held")
		if err != nil || len(left.Kvs) != 0 {
			t.Errorf("object in etcd after the delete of its definition: %v, %v, want none", left, err)
		}
	})
}

func TestUnservedVersionDisappearsAndOtherStays(t *testing.T) {
	t.Parallel()
	s := startCRDServer(t)
	s.define(t, twoVersions)
	ctx := within(t)
	at := func(version string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "light.example.com", Version: version, Resource: "lamps"}
	}
	old := object(t, "apiVersion: light.example.com/v1beta1\nkind: Lamp\nmetadata: {name: desk}\nspec: {watts: 40}")
	if _, err := s.dynamic.Resource(at("v1beta1")).Create(ctx, old, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := s.dynamic.Resource(at("v1")).Get(ctx, "desk", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if colour, _, _ := unstructured.NestedString(got.Object, "spec", "colour"); got.GetAPIVersion() != "light.example.com/v1" || colour != "warm" {
		t.Fatalf("object in v1 = %v, want apiVersion light.example.com/v1 and the colour warm", got.Object)
	}
	groups := s.Discovery().Groups
	i := slices.IndexFunc(groups, func(g groupDiscovery) bool { return g.Name == "light.example.com" })
	if versions := groups[i].Versions; len(versions) != 2 || versions[0].Version != "v1" || versions[1].Version != "v1beta1" {
		t.Fatalf("discovered versions = %v, want v1 and v1beta1", versions)
	}
	s.eventually(t, "two documents", func() bool {
		return s.document("apis/light.example.com/v1") != "" && s.document("apis/light.example.com/v1beta1") != ""
	})

	// A version that is no longer served disappears. The other version stays.
	patch := []byte(`[{"op":"replace","path":"/spec/versions/0/served","value":false}]`)
	if _, err := s.definitions.ApiextensionsV1().CustomResourceDefinitions().Patch(ctx, "lamps.light.example.com", types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, "v1beta1 goes", func() bool { return !s.GroupVersions().Has(at("v1beta1").GroupVersion()) })
	if _, err := s.dynamic.Resource(at("v1beta1")).Get(ctx, "desk", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("GET through v1beta1, which is no longer served: error = %v, want NotFound", err)
	}
	if _, err := s.dynamic.Resource(at("v1")).Get(ctx, "desk", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestDefinitionCannotReplaceBuiltInGroupVersion(t *testing.T) {
	t.Parallel()
	s := startCRDServer(t)
	ctx := within(t)
	// The group has a built-in version. A definition may add another version but may not replace the built-in one.
	text := strings.NewReplacer("light.example.com", "discovery.k8s.io", "v1beta1", "v7").Replace(twoVersions)
	crd := definition(t, text)
	crd.Annotations = map[string]string{"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/1"}
	if _, err := s.definitions.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	gv := schema.GroupVersion{Group: "discovery.k8s.io", Version: "v7"}
	s.eventually(t, "v7 appears", func() bool { return s.GroupVersions().Has(gv) })
	if _, err := s.typed(t, admin).DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	lamps := schema.GroupVersionResource{Group: "discovery.k8s.io", Resource: "lamps"}
	if _, err := s.dynamic.Resource(lamps.GroupResource().WithVersion("v1")).List(ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("list through v1, which is built in: error = %v, want NotFound", err)
	}
	if _, err := s.dynamic.Resource(lamps.GroupResource().WithVersion("v7")).List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("list through v7 of the definition failed: %v, want no error", err)
	}
	groups := s.Discovery().Groups
	shared := slices.DeleteFunc(slices.Clone(groups), func(g groupDiscovery) bool { return g.Name != "discovery.k8s.io" })
	if len(shared) != 1 || len(shared[0].Versions) != 2 || shared[0].Versions[0].Resources[0].Resource != "endpointslices" {
		t.Errorf("discovery of discovery.k8s.io = %v, want one group with 2 versions, endpointslices in the first", shared)
	}
}

func TestDefinitionsAreServedAfterRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	t.Run("first life", func(t *testing.T) {
		s := crdServerOver(t, startIn(t, dir))
		s.define(t, twoVersions)
	})
	t.Run("second life", func(t *testing.T) {
		begun := time.Now()
		s := crdServerOver(t, startIn(t, dir))
		t.Logf("ready with a definition after %s", time.Since(begun))
		// The test does not wait: garbage collectors delete objects after a 404 for a stored resource.
		if !s.GroupVersions().Has(schema.GroupVersion{Group: "light.example.com", Version: "v1"}) {
			t.Fatalf("served group-versions after the restart = %v, want light.example.com/v1", s.GroupVersions())
		}
		lamps := schema.GroupVersionResource{Group: "light.example.com", Version: "v1", Resource: "lamps"}
		if _, err := s.dynamic.Resource(lamps).List(within(t), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDefinitionsOfTwoServersAreIndependent(t *testing.T) {
	t.Parallel()
	one, two := startCRDServer(t), startCRDServer(t)
	one.define(t, boats)
	if two.GroupVersions().Has(boatsV1.GroupVersion()) {
		t.Fatal("the other server serves sea.example.com/v1, want not served")
	}
	if _, err := two.dynamic.Resource(boatsV1).List(within(t), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("list of boats at the other server: error = %v, want NotFound", err)
	}
	// This definition has the same name and another schema.
	two.define(t, strings.Replace(boats, "minimum: 1", "minimum: 5", 1))
	namespace(t, two.typed(t, admin), "work")
	if _, err := two.dynamic.Resource(boatsV1).Namespace("work").Create(within(t), boat(t, "few", "{crew: 2}"), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Fatalf("create of a boat with 2 crew at the server with minimum 5: error = %v, want Invalid", err)
	}
}

func TestCreateInTerminatingNamespaceIsForbidden(t *testing.T) {
	t.Parallel()
	s := startCRDServer(t)
	client := s.typed(t, admin)
	namespace(t, client, "ending")
	s.define(t, boats)
	ctx := within(t)
	if err := client.CoreV1().Namespaces().Delete(ctx, "ending", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := s.dynamic.Resource(boatsV1).Namespace("ending").Create(ctx, boat(t, "late", "{crew: 1}"), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !apierrors.HasStatusCause(err, "NamespaceTerminating") {
		t.Fatalf("create in a terminating namespace: error = %v, want Forbidden with the cause NamespaceTerminating", err)
	}
}

func TestDefinitionChangeKeepsOtherOpenAPIDocuments(t *testing.T) {
	t.Parallel()
	s := startCRDServer(t)
	s.define(t, boats)
	s.define(t, twoVersions)
	hashes := func() (hashes []string) {
		all, err := s.Swagger()
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range all {
			hashes = append(hashes, d.Hash)
		}
		return hashes
	}
	before := hashes()
	if unique := slices.Compact(slices.Sorted(slices.Values(before))); len(unique) != 3 { // boats has one version, lamps two
		t.Fatalf("hashes of the documents = %v, want 3 distinct ones", before)
	}
	all, _ := s.Swagger()
	for i, want := range []string{"/apis/light.example.com/v1/lamps", "/apis/light.example.com/v1beta1/lamps", "/apis/sea.example.com/v1/boats"} {
		body, err := all[i].Build()
		if err != nil || !strings.Contains(string(body), `"`+want+`"`) {
			t.Errorf("document %d = %.200s, %v, want one with %s", i, body, err, want)
		}
	}
	patch := []byte(`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/anchor","value":{"type":"string"}}]`)
	if _, err := s.definitions.ApiextensionsV1().CustomResourceDefinitions().Patch(within(t), "boats.sea.example.com", types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(t, "the informer has the change", func(context.Context) bool { return !slices.Equal(hashes(), before) })
	if after := hashes(); !slices.Equal(after[:2], before[:2]) || after[2] == before[2] {
		t.Errorf("hashes after the change = %v, want those of lamps unchanged and another for boats than in %v", after, before)
	}
}
