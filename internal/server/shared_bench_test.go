package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/dispatch/dispatchtest"
	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/routes/sharedreads"
	"portico.dev/internal/transport"
)

// BenchmarkSharedReads compares reads of a list of 100 KB that are sent to the backend with reads that share a response.
func BenchmarkSharedReads(b *testing.B) {
	set := transport.New(transport.Options{Engine: enginetest.Backend(b)})
	b.Cleanup(set.Close)
	list := []byte(`{"kind":"List","items":["` + strings.Repeat("x", 100<<10) + `"]}`)
	backend := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(list)
	})
	router := routerOf(dispatchtest.Table(b, set, sharing("All"), map[string]http.Handler{"first": backend}))
	for _, c := range []struct {
		name  string
		cache *sharedreads.Cache
	}{{"sent", nil}, {"shared", sharedreads.New(sharedreads.Config{})}} {
		b.Run(c.name, func(b *testing.B) {
			router.SharedReads = c.cache
			h := chainFor(&user.DefaultInfo{Name: "alice"}, router)
			b.ReportAllocs()
			b.SetBytes(int64(len(list)))
			b.RunParallel(func(pb *testing.PB) {
				w := &discard{header: http.Header{}}
				for pb.Next() {
					clear(w.header)
					h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/apis/example.com/v1/namespaces/a/widgets", nil))
					if w.code != http.StatusOK {
						b.Errorf("status of the read = %d, want 200", w.code)
						return
					}
				}
			})
		})
	}
}

// discard is a response writer that keeps only the status code.
type discard struct {
	header http.Header
	code   int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(code int)        { d.code = code }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
