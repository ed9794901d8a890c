package request

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

func TestCheckTarget(t *testing.T) {
	for name, c := range map[string]struct {
		path, query string
		refused     string
	}{
		"root":                            {path: "/"},
		"group list":                      {path: "/apis"},
		"group list with a slash":         {path: "/apis/"},
		"names with colons":               {path: "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:auth-delegator"},
		"metric wildcard":                 {path: "/apis/custom.metrics.k8s.io/v1beta1/namespaces/default/pods/*/http_requests"},
		"escaped blank":                   {path: "/api/v1/namespaces/a%20b"},
		"escaped blank in lower case":     {path: "/api/v1/namespaces/%c3%a9"},
		"usual query":                     {path: "/api/v1/pods", query: "limit=500&labelSelector=a%3Db&watch=1"},
		"repeated exec command":           {path: "/api/v1/pods", query: "command=ls&command=-l"},
		"A16 dot segment":                 {path: "/api/v1/namespaces/../secrets", refused: "dot segment"},
		"A16 single dot":                  {path: "/./api", refused: "dot segment"},
		"A16 encoded slash":               {path: "/apis/g/v1/namespaces/ns1/foos/a%2F..%2F..%2Fns2", refused: "escaped"},
		"A16 encoded slash in lower case": {path: "/api/v1/namespaces/ns%2fsecrets/x", refused: "escaped"},
		"A16 encoded dots":                {path: "/api/v1/%2e%2e/secrets", refused: "escaped"},
		"A16 double encoding":             {path: "/api/v1/%252e%252e/secrets", refused: "escaped"},
		"A16 overlong dot":                {path: "/api/v1/\xc0\xae", refused: "not ASCII"},
		"A16 encoded overlong dot":        {path: "/api/v1/%c0%ae"}, // two bytes that are no dot to any parser that is left
		"A16 empty segment":               {path: "//apis", refused: "empty segment"},
		"A16 empty segment inside":        {path: "/apis//v1", refused: "empty segment"},
		"A16 two trailing slashes":        {path: "/apis//", refused: "empty segment"},
		"A16 path parameter":              {path: "/api/v1/..;/secrets", refused: "';'"},
		"A16 trailing encoded slash":      {path: "/api/v1/pods%2f", refused: "escaped"},
		"A16 backslash":                   {path: `/api\v1`, refused: `'\\'`},
		"A16 fragment":                    {path: "/api/v1/pods#/x", refused: `'#'`},
		"A16 fragment in the query":       {path: "/api/v1/pods", query: "watch=1#&watch=0", refused: "'#'"},
		"A16 encoded backslash":           {path: "/api%5cv1", refused: "escaped"},
		"A16 NUL":                         {path: "/api/%00", refused: "control byte"},
		"A16 fullwidth dots":              {path: "/api/．．/x", refused: "not ASCII"},
		"A16 long segment":                {path: "/api/" + strings.Repeat("a", MaxSegmentBytes+1), refused: "longer"},
		"needless escape":                 {path: "/api/v1/%6eamespaces", refused: "needless"},
		"incomplete escape":               {path: "/api/v1/a%2", refused: "incomplete"},
		"malformed escape":                {path: "/api/v1/a%zz", refused: "malformed"},
		"no leading slash":                {path: "api", refused: "begin with a slash"},
		"A21 semicolon":                   {path: "/api", query: "a=1;b=2", refused: "semicolon"},
		"A21 malformed escape":            {path: "/api", query: "a=%zz", refused: "malformed"},
		"A21 limit twice":                 {path: "/api", query: "limit=5&limit=500", refused: "more than once"},
		"A21 too many parameters":         {path: "/api", query: strings.Repeat("a=1&", MaxQueryParameters+1), refused: "more than 1000"},
		"A21 too long":                    {path: "/api", query: "a=" + strings.Repeat("b", MaxQueryBytes), refused: "longer"},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckTarget(c.path, c.query)
			switch {
			case c.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.refused != "" && err == nil:
				t.Error("accepted")
			case c.refused != "" && !strings.Contains(err.Error(), c.refused):
				t.Errorf("error %q does not say %q", err, c.refused)
			}
		})
	}
}

// What passes has one reading: decoding it and cleaning it changes nothing that a router or an authorizer looks at.
func FuzzCheckTarget(f *testing.F) {
	for _, seed := range []string{"/", "/api/v1/namespaces/a%20b", "/apis/g/v1/foos/a%2F..%2Fb", "/a/%2e%2e/b", "//", "/a//b/", "/%C3%A9", "/a;b"} {
		f.Add(seed, "limit=5&a=b")
	}
	resolver := NewResolver()
	f.Fuzz(func(t *testing.T, path, query string) {
		if CheckTarget(path, query) != nil {
			return
		}
		u, err := url.ParseRequestURI(path)
		if err != nil {
			t.Fatalf("accepted %q, which does not parse: %v", path, err)
		}
		if got := strings.Count(u.Path, "/"); got != strings.Count(path, "/") {
			t.Fatalf("accepted %q, which decodes to another number of segments: %q", path, u.Path)
		}
		for segment := range strings.SplitSeq(u.Path, "/") {
			if segment == "." || segment == ".." || strings.ContainsAny(segment, "\\%\x00;") {
				t.Fatalf("accepted %q, whose segment %q has another reading", path, segment)
			}
		}
		r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: u.Path}}
		before, err := resolver.Info(r)
		if err != nil {
			return
		}
		again, err := resolver.Info(&http.Request{Method: http.MethodGet, URL: &url.URL{Path: u.Path, RawPath: path}})
		if err != nil || before.Path != again.Path || before.Name != again.Name || before.Namespace != again.Namespace {
			t.Fatalf("%q is understood differently raw and decoded", path)
		}
	})
}

func TestLongRunning(t *testing.T) {
	for target, want := range map[string]bool{
		"/api/v1/pods?watch=1":                               true,
		"/api/v1/watch/pods":                                 true,
		"/api/v1/namespaces/a/pods/b/log":                    true,
		"/api/v1/namespaces/a/pods/b/exec":                   true,
		"/api/v1/namespaces/a/pods/b/proxy/x":                true,
		"/api/v1/pods":                                       false,
		"/api/v1/namespaces/a/pods/b/status":                 false,
		"/apis":                                              false,
		"/debug/pprof/profile":                               true,
		"/debug/pprof":                                       false,
		"/api/v1/namespaces?fieldSelector=metadata.name%3Da": false,
	} {
		info, err := NewResolver().Info(httptest.NewRequest(http.MethodGet, target, nil))
		if err != nil {
			t.Fatal(err)
		}
		if got := LongRunning(info); got != want {
			t.Errorf("%s: long-running %v, want %v", target, got, want)
		}
	}
	if LongRunning(nil) {
		t.Error("a request without meaning counts as long-running")
	}
}

// The extension-apiserver-authentication Role grants a watch of one name; it works only if the name is in the attributes.
func TestListOfOneNameCarriesTheName(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/kube-system/configmaps?watch=1&fieldSelector=metadata.name%3Dx", nil)
	var info *apirequest.RequestInfo
	info, err := NewResolver().Info(r)
	if err != nil || info.Name != "x" || info.Verb != "watch" {
		t.Errorf("got %+v, %v", info, err)
	}
}

func TestAuditID(t *testing.T) {
	ctx := t.Context()
	if got := AuditID(ctx); got != "" {
		t.Errorf("outside a request: %q", got)
	}
	if got := AuditID(WithAuditID(ctx, "a")); got != "a" {
		t.Errorf("got %q", got)
	}
}
