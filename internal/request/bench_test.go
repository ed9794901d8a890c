package request

import (
	"net/http"
	"testing"
)

// Targets of frequent requests.
var everyday = map[string]string{
	"get":         "/apis/metrics.k8s.io/v1beta1/namespaces/kube-system/pods/etcd-0",
	"list":        "/api/v1/namespaces/default/configmaps?limit=500&resourceVersion=0",
	"watch":       "/apis/apps/v1/deployments?allowWatchBookmarks=true&resourceVersion=1234&timeoutSeconds=400&watch=true",
	"no resource": "/openapi/v3",
}

func BenchmarkCheckTarget(b *testing.B) {
	for name, target := range everyday {
		r := benchTarget(b, target)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := CheckTarget(r.URL.EscapedPath(), r.URL.RawQuery); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkInfo(b *testing.B) {
	resolver := NewResolver()
	for name, target := range everyday {
		r := benchTarget(b, target)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := resolver.Info(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func benchTarget(b *testing.B, target string) *http.Request {
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "https://front"+target, http.NoBody)
	if err != nil {
		b.Fatal(err)
	}
	return r
}
