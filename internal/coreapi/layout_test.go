package coreapi

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/coreapi/kinds/cluster"
	"portico.dev/internal/store"
)

// directories maps the resources of kube-apiserver whose directory differs from the resource's name.
var directories = map[schema.GroupResource]string{
	{Resource: "nodes"}:                                                    "minions",
	{Resource: "endpoints"}:                                                "services/endpoints",
	{Resource: "services"}:                                                 "services/specs",
	{Resource: "replicationcontrollers"}:                                   "controllers",
	{Group: "networking.k8s.io", Resource: "ingresses"}:                    "ingress",
	{Group: "apiregistration.k8s.io", Resource: "apiservices"}:             "apiregistration.k8s.io/apiservices",
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}: "apiextensions.k8s.io/customresourcedefinitions",
	// kube-apiserver stores none of these. It would store them in these directories as custom resources.
	{Group: "routing.portico.dev", Resource: "apiroutes"}: "routing.portico.dev/apiroutes",
	{Group: "clusters.portico.dev", Resource: "clusters"}: "clusters.portico.dev/clusters",
}

// Portico and kube-apiserver can share an etcd one after the other: each kind is in the same directory.
func TestStorageDirectoriesMatchKubeAPIServer(t *testing.T) {
	taken := map[string]schema.GroupResource{}
	for _, g := range cluster.All() {
		for _, r := range g.Resources {
			resource := schema.GroupResource{Group: g.Version.Group, Resource: r.Name}
			want := r.Name
			if special, ok := directories[resource]; ok {
				want = special
			}
			if got := r.StorageDirectory(); got != want {
				t.Errorf("StorageDirectory() of %s = %q, want %q", resource, got, want)
			}
			if other, ok := taken[want]; ok && other != resource {
				t.Errorf("%s and %s share a directory, want distinct directories", resource, other)
			}
			taken[want] = resource
		}
	}
}

// The test compares the keys and the encoding of the values in etcd.
func TestEtcdKeysAndEncodingsMatchKubeAPIServer(t *testing.T) {
	t.Parallel()
	for mediaType, begins := range map[string]string{
		"":                                    "k8s\x00",
		"application/vnd.kubernetes.protobuf": "k8s\x00",
		"application/json":                    `{"kind":`,
		"application/yaml":                    "apiVersion: v1\n",
	} {
		t.Run("as "+mediaType, func(t *testing.T) {
			h := start(t, func(c *Config) { c.Storage.MediaType = mediaType })
			client := h.typed(t, admin)
			namespace(t, client, "work")
			mustCreate(t, client, configMap("a", nil))
			ctx := within(t)
			if _, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
			if _, err := client.CoreV1().Services("work").Create(ctx, service, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			fleet := crdServerOver(t, h)
			fleet.define(t, boats)
			if _, err := fleet.dynamic.Resource(boatsV1).Namespace("work").Create(ctx, boat(t, "first", "{crew: 3}"), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			values := map[string][]byte{}
			found, err := h.store.Client().KV.Get(ctx, "/registry/", clientv3.WithPrefix())
			if err != nil {
				t.Fatal(err)
			}
			for _, kv := range found.Kvs {
				values[string(kv.Key)] = kv.Value
			}
			for key, form := range map[string]string{
				"/registry/namespaces/work":                  "", // empty because of the request
				"/registry/configmaps/work/a":                "",
				"/registry/minions/n":                        "",
				"/registry/services/specs/work/s":            "",
				"/registry/sea.example.com/boats/work/first": `{"apiVersion":`,
				"/registry/apiextensions.k8s.io/customresourcedefinitions/boats.sea.example.com": `{"kind":`,
			} {
				if form == "" {
					form = begins
				}
				if value, ok := values[key]; !ok || !bytes.HasPrefix(value, []byte(form)) {
					t.Errorf("value of %s (exists: %t) = %.40q, want the prefix %q", key, ok, value, form)
				}
			}
			got, err := client.CoreV1().ConfigMaps("work").Get(ctx, "a", metav1.GetOptions{})
			if err != nil || got.Name != "a" {
				t.Errorf("GET of the stored object = %v, %v, want the name a", got, err)
			}
		})
	}
}

// Objects in another encoding are readable. The next write changes them to the new encoding.
func TestStorageEncodingChangesOnNextWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	raw := func(t *testing.T, h *testServer) string {
		got, err := h.store.Client().KV.Get(within(t), "/registry/configmaps/work/a")
		if err != nil || len(got.Kvs) != 1 {
			t.Fatalf("GET of /registry/configmaps/work/a = %v, %v, want one value", got, err)
		}
		return string(got.Kvs[0].Value)
	}
	for i, mediaType := range StorageMediaTypes() {
		t.Run(fmt.Sprintf("%d to %s", i, mediaType), func(t *testing.T) {
			h := startIn(t, dir, func(c *Config) { c.Storage.MediaType = mediaType })
			client := h.typed(t, admin)
			if i == 0 {
				namespace(t, client, "work")
				mustCreate(t, client, configMap("a", nil))
				return
			}
			before := raw(t, h)
			object, err := client.CoreV1().ConfigMaps("work").Get(within(t), "a", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			object.Data = map[string]string{"form": mediaType}
			if _, err := client.CoreV1().ConfigMaps("work").Update(within(t), object, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			if after := raw(t, h); after[:4] == before[:4] || !strings.Contains(after, mediaType) {
				t.Errorf("stored as %.40q before and %.40q after, want %s after", before, after, mediaType)
			}
		})
	}
	idle, err := store.New(store.Config{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{Store: idle, Authorizer: people{}, RuleResolver: people{}, Storage: Storage{MediaType: "application/cbor"}}); err == nil ||
		!slices.ContainsFunc(StorageMediaTypes(), func(m string) bool { return strings.Contains(err.Error(), m) }) {
		t.Errorf("New with the media type application/cbor: error = %v, want an error that names a supported type", err)
	}
}
