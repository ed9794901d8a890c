package filters

import (
	"net/url"
	"testing"
)

// BenchmarkAuditedURI measures the URI of a watch in the form of an audit event.
func BenchmarkAuditedURI(b *testing.B) {
	u, err := url.Parse("/apis/apps/v1/deployments?allowWatchBookmarks=true&resourceVersion=1234&timeoutSeconds=400&watch=true")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		AuditedURI(u)
	}
}
