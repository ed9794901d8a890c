package coreapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/audit"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"golang.org/x/sync/errgroup"

	"portico.dev/internal/request"
)

// nowhere is a response writer that only counts the bytes.
type nowhere struct {
	header http.Header
	code   int
	bytes  int64
	writes int
}

func (n *nowhere) Header() http.Header  { return n.header }
func (n *nowhere) WriteHeader(code int) { n.code = code }
func (n *nowhere) Write(p []byte) (int, error) {
	n.bytes += int64(len(p))
	n.writes++
	return len(p), nil
}

// BenchmarkListOf10000 compares lists with k8s.io/apiserver's lists, which serves every request with the parameter pretty.
func BenchmarkListOf10000(b *testing.B) {
	const n = 10_000
	s := startCRDServer(b)
	namespace(b, s.typed(b, admin), "many")
	s.define(b, boats)
	ctx, client, fleet := b.Context(), s.typed(b, admin), s.dynamic.Resource(boatsV1).Namespace("many")
	var making errgroup.Group
	making.SetLimit(16)
	for i := range n {
		making.Go(func() error {
			name := fmt.Sprint("object-", i)
			_, err := client.CoreV1().ConfigMaps("many").Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": strings.Repeat("c", 900)},
			}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			cargo := make([]any, 10)
			for j := range cargo {
				cargo[j] = map[string]any{"name": fmt.Sprint("barrel-of-salted-fish-number-", j), "tons": int64(j)}
			}
			boat := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "sea.example.com/v1", "kind": "Boat", "metadata": map[string]any{"name": name},
				"spec": map[string]any{"crew": int64(3), "cargo": cargo, "harbour": strings.Repeat("h", 400)},
			}}
			_, err = fleet.Create(ctx, boat, metav1.CreateOptions{})
			return err
		})
	}
	if err := making.Wait(); err != nil {
		b.Fatal(err)
	}
	for _, of := range []struct{ name, path, accept string }{
		{"ConfigMaps, JSON", "/api/v1/namespaces/many/configmaps", "application/json"},
		{"ConfigMaps, protobuf", "/api/v1/namespaces/many/configmaps", "application/vnd.kubernetes.protobuf"},
		{"ConfigMaps, Table", "/api/v1/namespaces/many/configmaps", "application/json;as=Table;v=v1;g=meta.k8s.io"},
		{"ConfigMaps, metadata", "/api/v1/namespaces/many/configmaps", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"},
		{"custom resources, JSON", "/apis/sea.example.com/v1/namespaces/many/boats", "application/json"},
		{"custom resources, Table", "/apis/sea.example.com/v1/namespaces/many/boats", "application/json;as=Table;v=v1;g=meta.k8s.io"},
		{"custom resources, metadata", "/apis/sea.example.com/v1/namespaces/many/boats", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"},
	} {
		for _, by := range []struct{ name, query string }{{"library", "?pretty=false"}, {"cache", ""}} {
			b.Run(of.name+"/"+by.name, func(b *testing.B) {
				list := func() *nowhere {
					r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://front"+of.path+by.query, nil)
					if err != nil {
						b.Fatal(err)
					}
					r.Header.Set("Accept", of.accept)
					info, err := request.NewResolver().Info(r)
					if err != nil {
						b.Fatal(err)
					}
					w := &nowhere{header: http.Header{}}
					s.Handler().ServeHTTP(w, r.WithContext(apirequest.WithUser(apirequest.WithRequestInfo(audit.WithAuditContext(r.Context()), info), admin)))
					if w.code != http.StatusOK || w.bytes < n*100 {
						b.Fatalf("list = %d with %d bytes, want 200 and at least %d bytes", w.code, w.bytes, n*100)
					}
					return w
				}
				for range 2 { // the second list fills the cache that later lists read
					list()
				}
				b.ReportAllocs()
				for b.Loop() {
					w := list()
					b.SetBytes(w.bytes)
					b.ReportMetric(float64(w.writes), "writes/op")
				}
			})
		}
	}
}
