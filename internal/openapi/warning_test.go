package openapi

import (
	"net/http"
	"strings"
	"testing"

	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/discovery/remote/remotetest"
)

// While an extension server is unavailable, its last-known document has a Warning. Documents about all groups have none, and
// neither has a document that a cache keeps for a year.
func TestDocumentOfUnavailableBackendHasWarning(t *testing.T) {
	b := remotetest.NewTLS(t, "ns/gadgets:443", remotetest.Paths{
		"/openapi/v3": index3(gadgetsPath + "#AA"), "/openapi/v3/" + gadgetsPath: json3(v3("three", "/apis/example.com/v1/gadgets", "/apis/example.com/v1")),
	})
	local := document(t, "api/v1", v3("local", "/api/v1/pods"))
	h := open(t, []Document{local}, routeTo(b))
	h.until(t, gadgetsPath, "three")
	hash := h.current.Load().documents[gadgetsPath].Hash
	dead := remote.NewWarning([]remote.StaleAPIService{{Name: "v1.example.com", Unavailable: true, Reason: "FailedDiscoveryCheck"}})
	want := `299 - "` + dead.Text() + `"`

	for name, c := range map[string]struct {
		target string
		warned bool
	}{
		"index":                         {"/openapi/v3", false},
		"index with a slash":            {"/openapi/v3/", false},
		"last-known document":           {"/openapi/v3/" + gadgetsPath, true},
		"last-known document by a hash": {"/openapi/v3/" + gadgetsPath + "?hash=" + hash, false},
		"redirect from an old hash":     {"/openapi/v3/" + gadgetsPath + "?hash=OLD", false},
		"document of a local group":     {"/openapi/v3/api/v1", false},
		"no document":                   {"/openapi/v3/apis/none.example.com/v1", false},
		"version 2":                     {"/openapi/v2", false},
	} {
		t.Run(name, func(t *testing.T) {
			h.warn(nil)
			before := h.get(c.target)
			h.warn(dead)
			during := h.get(c.target, "If-None-Match", before.Header().Get("ETag"))
			if got := strings.Join(during.Header()["Warning"], ", "); (got == want) != c.warned || got != "" && got != want {
				t.Errorf("Warning = %q, want %q if the document is stale (%t)", got, want, c.warned)
			}
			if before.Header()["Warning"] != nil {
				t.Errorf("Warning before the outage = %q, want none", before.Header()["Warning"])
			}
			if !c.warned {
				return
			}
			if again := h.get(c.target, "If-None-Match", during.Header().Get("ETag")); during.Code != http.StatusOK || again.Code != http.StatusNotModified || again.Header()["Warning"] != nil {
				t.Errorf("responses with a new warning = %d, then %d with Warning %q, want 200, then 304 without one", during.Code, again.Code, again.Header()["Warning"])
			}
			h.warn(nil)
			after := h.get(c.target, "If-None-Match", during.Header().Get("ETag"))
			if after.Code != http.StatusOK || after.Header()["Warning"] != nil || after.Header().Get("ETag") != before.Header().Get("ETag") {
				t.Errorf("response after the outage = %d with %v, want 200 with the first ETag and no Warning", after.Code, after.Header())
			}
		})
	}
}

// warn sets the warning at / and at the path of the gadgets; nil: none.
func (h *env) warn(w *remote.Warning) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.warnings = map[string]*remote.Warning{"/": w, "/" + gadgetsPath: w}
}
