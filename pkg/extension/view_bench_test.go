package extension

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

func fiveThousand() ListFunc[thing] {
	items := make([]thing, 5000)
	for i := range items {
		items[i] = thing{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("thing-%05d", i), Labels: map[string]string{"app": "bench"}}, Value: i}
	}
	return func(context.Context, Query) ([]thing, error) { return items, nil }
}

func thingHost() *Host {
	return &Host{issued: newVersions(time.Now()), bodies: newBodies(16 << 20), pages: newPages()}
}

// discard is a response that drops its body, so that the benchmark measures only the server.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) WriteHeader(int)             {}
func (d discard) Write(p []byte) (int, error) { return io.Discard.Write(p) }

// BenchmarkList5000 lists 5,000 items for fifty simultaneous callers: from a watchable resource, by label, from a source with MaxAge
// of a second, from a source that is listed for each request, and in pages. kept-MB is the heap size afterwards. heap-MB is the
// largest heap size of this process.
func BenchmarkList5000(b *testing.B) {
	definition := Definition[thing]{Group: "g", Version: "v1", Plural: "things", Kind: "Thing"}
	watched, aged := definition, definition
	watched.PollInterval = time.Second
	aged.MaxAge = time.Second
	for _, c := range []struct {
		situation  string
		definition Definition[thing]
		query      string
		gzip       bool
	}{
		{"watchable", watched, "", false},
		{"watchable, gzip", watched, "", true},
		{"watchable, by label", watched, "?labelSelector=app%3Dbench", false},
		{"a second old", aged, "", false},
		{"a second old, gzip", aged, "", true},
		{"asked each time", definition, "", false},
		{"asked each time, gzip", definition, "", true},
		{"in pages", watched, "?limit=500", false},
	} {
		b.Run(c.situation, func(b *testing.B) {
			s := newResourceHandler(Of(c.definition, fiveThousand()), thingHost())
			b.ReportAllocs()
			b.SetParallelism(25)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := listThings(b.Context(), s, c.query, c.gzip); err != nil {
						b.Error(err)
						return
					}
				}
			})
			var now runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&now)
			runtime.KeepAlive(s)
			b.ReportMetric(float64(now.HeapAlloc)/(1<<20), "kept-MB")
			b.ReportMetric(float64(now.HeapSys)/(1<<20), "heap-MB")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lists/s")
		})
	}
}

func listThings(ctx context.Context, s *resourceHandler, query string, gzip bool) error {
	r, err := http.NewRequestWithContext(apirequest.WithUser(ctx, &user.DefaultInfo{Name: "alice"}), http.MethodGet, "/apis/g/v1/things"+query, nil)
	if err != nil {
		return err
	}
	if gzip {
		r.Header.Set("Accept-Encoding", "gzip")
	}
	info := &apirequest.RequestInfo{IsResourceRequest: true, Verb: "list", APIGroup: "g", APIVersion: "v1", Resource: "things"}
	return s.list(discard{http.Header{}}, r, info)
}
