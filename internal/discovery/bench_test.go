package discovery

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// cityOf returns n group-versions of five resources each, of which the first are stale.
func cityOf(n, stale int) []GroupVersion {
	gvs := make([]GroupVersion, n)
	for i := range gvs {
		gv := schema.GroupVersion{Group: fmt.Sprintf("group-%04d.example.com", i), Version: "v1"}
		gvs[i] = GroupVersion{GroupVersion: gv, APIService: "v1." + gv.Group, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
		if i < stale {
			gvs[i].Freshness = apidiscoveryv2.DiscoveryFreshnessStale
		}
		for r := range 5 {
			gvs[i].Resources = append(gvs[i].Resources, apidiscoveryv2.APIResourceDiscovery{
				Resource: fmt.Sprintf("resources%d", r), SingularResource: fmt.Sprintf("resource%d", r), Scope: apidiscoveryv2.ScopeNamespace,
				ResponseKind: &metav1.GroupVersionKind{Group: gv.Group, Version: "v1", Kind: fmt.Sprintf("Resource%d", r)},
				Verbs:        []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"},
			})
		}
	}
	return gvs
}

// nobody is a client that reads everything and keeps nothing.
type nobody struct {
	header http.Header
	bytes  int64
}

func (n *nobody) Header() http.Header { return n.header }
func (n *nobody) WriteHeader(int)     {}
func (n *nobody) Write(p []byte) (int, error) {
	n.bytes += int64(len(p))
	return len(p), nil
}

func BenchmarkServe(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		for name, stale := range map[string]int{"healthy": 0, "half-dead": n / 2} {
			b.Run(fmt.Sprintf("%d/%s", n, name), func(b *testing.B) {
				e, err := newEncoder()
				if err != nil {
					b.Fatal(err)
				}
				s, err := newSnapshot(e, nil, cityOf(n, stale), true, "")
				if err != nil {
					b.Fatal(err)
				}
				m := &Merger{}
				m.current.Store(s)
				r := httptest.NewRequest(http.MethodGet, "/apis", nil)
				r.Header.Set("Accept", acceptJSON+",application/json")
				r.Header.Set("Accept-Encoding", "gzip")
				b.ReportAllocs()
				var sent int64
				for b.Loop() {
					w := &nobody{header: http.Header{}}
					m.ServeHTTP(w, r)
					sent = w.bytes
				}
				b.ReportMetric(float64(sent), "bytes/answer")
			})
		}
	}
}

// BenchmarkFlip measures the cost of one backend's change between current and stale.
func BenchmarkFlip(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			e, err := newEncoder()
			if err != nil {
				b.Fatal(err)
			}
			cities := [][]GroupVersion{cityOf(n, 0), cityOf(n, 1)}
			var s *Snapshot
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if s, err = newSnapshot(e, s, cities[i%2], true, ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkReason measures the cost of a changed reason of one unavailable backend.
func BenchmarkReason(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			e, err := newEncoder()
			if err != nil {
				b.Fatal(err)
			}
			s, err := newSnapshot(e, nil, cityOf(n, 1), true, "")
			if err != nil {
				b.Fatal(err)
			}
			other := slices.Clone(s.gvs)
			other[0].Reason = "another"
			b.ReportAllocs()
			for b.Loop() {
				next, err := newSnapshot(e, s, other, true, "")
				if err != nil {
					b.Fatal(err)
				}
				if !next.sameDocuments(s) {
					b.Fatal("sameDocuments() = false for another reason, want true")
				}
			}
		})
	}
}
