package filters

import (
	"net/url"
	"testing"
)

func TestAuditedURIRedactsUnknownParameters(t *testing.T) {
	for given, want := range map[string]string{
		"/api/v1/pods":  "/api/v1/pods",
		"/api/v1/pods?": "/api/v1/pods",
		"/api/v1/pods?limit=500&resourceVersion=0":         "/api/v1/pods?limit=500&resourceVersion=0",
		"/api/v1/pods?watch&labelSelector=a%3Db":           "/api/v1/pods?watch&labelSelector=a%3Db",
		"/a%20b?watch=true":                                "/a%20b?watch=true",
		"/api/v1/pods?watch=true&token=secret":             "/api/v1/pods?watch=true&token=...",
		"/api/v1/pods?token=secret&watch=true":             "/api/v1/pods?token=...&watch=true",
		"/api/v1/pods?watch=true&secret":                   "/api/v1/pods?watch=true&...",
		"/api/v1/pods?watch=true&":                         "/api/v1/pods?watch=true&...",
		"/api/v1/pods?w%61tch=true":                        "/api/v1/pods?w%61tch=...",
		"/api/v1/namespaces/n/pods/p/exec?command=a&tty=1": "/api/v1/namespaces/n/pods/p/exec?command=...&tty=1",
	} {
		u, err := url.Parse(given)
		if err != nil {
			t.Fatal(err)
		}
		if got := AuditedURI(u); got != want {
			t.Errorf("AuditedURI(%q) = %s, want %s", given, got, want)
		}
	}
}
