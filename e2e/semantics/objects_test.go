package semantics

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// collection is a collection of small objects that a test makes and changes.
type collection struct {
	t    *testing.T
	path string // of the collection
	kind string
	gv   string
}

// configMaps are served from a watch cache.
func configMaps(t *testing.T, namespace string) collection {
	makeNamespace(t, namespace)
	t.Cleanup(func() { call(t, http.MethodDelete, "/api/v1/namespaces/"+namespace, nil).want(http.StatusOK) })
	return collection{t, "/api/v1/namespaces/" + namespace + "/configmaps", "ConfigMap", "v1"}
}

// events have no watch cache: they are read from etcd.
func events(t *testing.T, namespace string) collection {
	s := configMaps(t, namespace)
	s.path, s.kind = strings.Replace(s.path, "configmaps", "events", 1), "Event"
	return s
}

// gems are custom resources.
func gems(t *testing.T, namespace string) collection {
	configMaps(t, namespace)
	define(t, strings.ReplaceAll(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gems.NAME.example.com}
spec:
  group: NAME.example.com
  scope: Namespaced
  names: {plural: gems, singular: gem, kind: Gem}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`, "NAME", namespace))
	return collection{t, "/apis/" + namespace + ".example.com/v1/namespaces/" + namespace + "/gems", "Gem", namespace + ".example.com/v1"}
}

func (s collection) put(name string) *unstructured.Unstructured {
	s.t.Helper()
	o := map[string]any{"apiVersion": s.gv, "kind": s.kind, "metadata": map[string]any{"name": name, "labels": map[string]any{"on": "shelf"}}}
	if s.kind == "Event" {
		o["involvedObject"] = map[string]any{"kind": "ConfigMap", "name": "a", "namespace": strings.Split(s.path, "/")[4]}
	}
	return call(s.t, http.MethodPost, s.path, encode(s.t, o)).want(http.StatusCreated).object()
}

// touch changes an object.
func (s collection) touch(name string, n int) *unstructured.Unstructured {
	s.t.Helper()
	body := fmt.Appendf(nil, `{"metadata":{"annotations":{"n":"%d"}}}`, n)
	return call(s.t, http.MethodPatch, s.path+"/"+name, body, "Content-Type", mergePatch).want(http.StatusOK).object()
}

func (s collection) remove(name string) {
	s.t.Helper()
	call(s.t, http.MethodDelete, s.path+"/"+name, nil).want(http.StatusOK)
}

// list is a list that must succeed; pairs are its query.
func (s collection) list(pairs ...string) *unstructured.UnstructuredList {
	s.t.Helper()
	list := &unstructured.UnstructuredList{}
	a := call(s.t, http.MethodGet, s.path+query(pairs...), nil).want(http.StatusOK)
	if err := list.UnmarshalJSON(a.body); err != nil {
		s.t.Fatal(err)
	}
	return list
}

// names are the names in a list, the annotation n of each behind them.
func names(list *unstructured.UnstructuredList) string {
	var all []string
	for _, item := range list.Items {
		name := item.GetName()
		if n := item.GetAnnotations()["n"]; n != "" {
			name += "=" + n
		}
		all = append(all, name)
	}
	return strings.Join(all, " ")
}

// compact compacts etcd at the current revision, and writes the key by which replicas announce it.
func compact(t *testing.T) {
	t.Helper()
	client := etcd(t)
	put, err := client.Put(within(t), "compact_rev_key", "0")
	if err != nil {
		t.Fatal(err)
	}
	now := put.Header.Revision
	if _, err := client.Put(within(t), "compact_rev_key", strconv.FormatInt(now, 10)); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(within(t), now); err != nil && !errors.Is(err, rpctypes.ErrCompacted) { // a concurrent compaction at a later revision is possible
		t.Fatal(err)
	}
}
