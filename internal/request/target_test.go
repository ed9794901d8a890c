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
		"A16 encoded overlong dot":        {path: "/api/v1/%c0%ae"}, // no current parser reads the two bytes as a dot
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
		"tail with an escaped slash":      {path: "/api/v1/nodes/n/proxy/stats%2Fsummary"},
		"tail in lower case":              {path: "/api/v1/namespaces/a/pods/b/proxy/x%2fy"},
		"tail that is escaped twice":      {path: "/api/v1/namespaces/a/services/b:80/proxy/x%252Fy"},
		"tail with a percent sign":        {path: "/api/v1/namespaces/a/services/b/proxy/100%25"},
		"tail with an empty segment":      {path: "/api/v1/nodes/n/proxy//stats//summary//"},
		"tail of a remote resource":       {path: "/apis/g.example.com/v1/namespaces/a/foos/b/console/x%2Fy%252Fz//"},
		"tail of a cluster-scoped one":    {path: "/apis/g.example.com/v1/foos/b/console/x%2Fy"},
		"tail of a namespace":             {path: "/api/v1/namespaces/a/status/x%2Fy"},
		"A16 slash in a subresource":      {path: "/api/v1/nodes/n/proxy%2Fstats", refused: "escaped '/'"},
		"A16 slash in a name with a tail": {path: "/api/v1/nodes/n%2Fproxy/proxy/stats", refused: "escaped '/'"},
		"A16 percent in a name":           {path: "/api/v1/nodes/n%2520/proxy/stats", refused: "escaped '%'"},
		"A16 empty name before a tail":    {path: "/api/v1/nodes//proxy/x", refused: "empty segment"},
		"A16 empty subresource":           {path: "/api/v1/nodes/n//x", refused: "empty segment"},
		"A16 empty namespace":             {path: "/api/v1/namespaces//pods/b/proxy/x%2Fy", refused: "empty segment"},
		"A16 no tail of the watch prefix": {path: "/api/v1/watch/namespaces/a/pods/b/proxy/x%2Fy", refused: "escaped '/'"},
		"A16 no tail of the proxy prefix": {path: "/api/v1/proxy/nodes/n/x%2Fy/a%2Fb/c%2Fd", refused: "escaped '/'"},
		"A16 no tail outside the API":     {path: "/logs/a/b/c/d/e/f/g%2Fh", refused: "escaped '/'"},
		"A16 no tail without a name":      {path: "/apis/g/v1/foos/x%2Fy", refused: "escaped '/'"},
		"A16 dots in a tail":              {path: "/api/v1/nodes/n/proxy/x%2F../y", refused: "dot segment"},
		"A16 dots between escapes":        {path: "/api/v1/nodes/n/proxy/x%2F..%2Fy", refused: "dot segment"},
		"A16 dot between escapes":         {path: "/api/v1/nodes/n/proxy/x%2F.%2Fy", refused: "dot segment"},
		"A16 escaped dots in a tail":      {path: "/api/v1/nodes/n/proxy/%2e%2e/y", refused: "escaped '.'"},
		"A16 dots that are escaped twice": {path: "/api/v1/nodes/n/proxy/%252e%252E/y", refused: "dot segment"},
		"A16 one dot that is escaped":     {path: "/api/v1/nodes/n/proxy/.%252e/y", refused: "dot segment"},
		"A16 dots between double escapes": {path: "/api/v1/nodes/n/proxy/x%252F..%252Fy", refused: "dot segment"},
		"A16 dots in three escapes":       {path: "/api/v1/nodes/n/proxy/%25252e%25252e", refused: "dot segment"},
		"A16 dots in four escapes":        {path: "/api/v1/nodes/n/proxy/%2525252e%2525252e", refused: "more than 3 times"},
		"A16 dots and a backslash":        {path: "/api/v1/nodes/n/proxy/x%255C..%255Cy", refused: "dot segment"},
		"A16 dots and a path parameter":   {path: "/api/v1/nodes/n/proxy/..%253Bx/y", refused: "dot segment"},
		"A16 backslash in a tail":         {path: "/api/v1/nodes/n/proxy/x%5Cy", refused: "escaped '\\\\'"},
		"A16 NUL in a tail":               {path: "/api/v1/nodes/n/proxy/x%00", refused: "control byte"},
		"A16 NUL that is escaped twice":   {path: "/api/v1/nodes/n/proxy/x%2500", refused: "control byte"},
		"A16 long segment in a tail":      {path: "/api/v1/nodes/n/proxy/x%2F" + strings.Repeat("a", MaxSegmentBytes), refused: "longer"},
		"needless escape in a tail":       {path: "/api/v1/nodes/n/proxy/x%2F%6e", refused: "needless"},
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
				t.Errorf("CheckTarget(%q, %q) = %v, want no error", c.path, c.query, err)
			case c.refused != "" && err == nil:
				t.Errorf("CheckTarget(%.80q, %.80q) = nil, want an error that contains %q", c.path, c.query, c.refused)
			case c.refused != "" && !strings.Contains(err.Error(), c.refused):
				t.Errorf("CheckTarget error = %q, want an error that contains %q", err, c.refused)
			}
		})
	}
}

// An accepted path has the same authorization attributes before and after decoding, and no dot segment however often it is decoded.
func FuzzCheckTarget(f *testing.F) {
	for _, seed := range []string{"/", "/api/v1/namespaces/a%20b", "/apis/g/v1/foos/a%2F..%2Fb", "/a/%2e%2e/b", "//", "/a//b/", "/%C3%A9", "/a;b",
		"/api/v1/nodes/n/proxy/stats%2Fsummary", "/apis/g/v1/namespaces/a/foos/b/c/%252F//d", "/api/v1/namespaces/a/pods/b/proxy//%252e%252e/x",
		"/apis/custom.metrics.k8s.io/v1beta1/namespaces/ns/pods%2F%2A%2Fmetric", "/api/v1/watch/nodes/n/proxy/%2F", "/api/v1/namespaces/a/status/%2F"} {
		f.Add(seed, "limit=5&a=b")
	}
	f.Fuzz(func(t *testing.T, path, query string) {
		path = canonicalPath(path)
		if CheckTarget(path, query) != nil {
			return
		}
		u, err := url.ParseRequestURI(path)
		if err != nil {
			t.Fatalf("parsing the accepted path %q failed: %v, want no error", path, err)
		}
		for text, depth := path, 0; depth < 8; text, depth = decodeOnce(text), depth+1 {
			for segment := range strings.FieldsFuncSeq(text, func(c rune) bool { return strings.ContainsRune(`/\`, c) }) {
				if name, _, _ := strings.Cut(segment, ";"); name == "." || name == ".." || strings.Contains(name, "\x00") {
					t.Fatalf("accepted path %q decodes to %q with the segment %q, want no dot segment and no NUL", path, text, segment)
				}
			}
		}
		// Canonicalize has run: the resolver's own reading of the raw bytes is compared with the reading of the decoded path.
		raw, rawErr := readAttributes(path)
		decoded, err := readAttributes(u.Path)
		if (rawErr == nil) != (err == nil) {
			t.Fatalf("errors for %q = %v raw and %v decoded, want both or none", path, rawErr, err)
		}
		for i := range raw {
			if text, err := url.PathUnescape(raw[i]); err != nil || text != decoded[i] {
				t.Fatalf("attributes of %q = %q raw and %q decoded, want equal ones", path, raw, decoded)
			}
		}
	})
}

// readAttributes returns the attributes of a GET of path, whose escapes are not decoded.
func readAttributes(path string) ([]string, error) {
	info, err := NewResolver().Info(&http.Request{Method: http.MethodGet, URL: &url.URL{Path: path}})
	if err != nil {
		return nil, err
	}
	all := []string{info.Verb, info.APIPrefix, info.APIGroup, info.APIVersion, info.Namespace, info.Resource, info.Subresource, info.Name}
	if !info.IsResourceRequest {
		all = append(all, info.Path)
	}
	return all, nil
}

func TestCanonicalPath(t *testing.T) {
	const metrics = "/apis/custom.metrics.k8s.io/v1beta1/"
	for in, want := range map[string]string{
		metrics + "namespaces/ns/pods%2F%2A%2Fmetric":              metrics + "namespaces/ns/pods/%2A/metric",
		metrics + "namespaces/ns/pods/%2A%2fmetric":                metrics + "namespaces/ns/pods/%2A/metric",
		metrics + "namespaces%2Fns%2Fpods%2Fa%2Fmetric":            metrics + "namespaces/ns/pods/a/metric",
		metrics + "nodes%2F%2A%2Fmetric":                           metrics + "nodes/%2A/metric",
		metrics + "namespaces/ns/pods/a/metric/x%2Fy":              metrics + "namespaces/ns/pods/a/metric/x%2Fy",
		metrics + "namespaces/ns/pods/%2A/metric":                  metrics + "namespaces/ns/pods/%2A/metric",
		metrics + "namespaces/ns/pods%252Fa":                       metrics + "namespaces/ns/pods%252Fa",
		"/apis/metrics.example.com/v1/namespaces/ns/pods%2F%2A%2F": "/apis/metrics.example.com/v1/namespaces/ns/pods%2F%2A%2F",
		"/api/v1/namespaces/ns/pods%2Fa":                           "/api/v1/namespaces/ns/pods%2Fa",
	} {
		if got := canonicalPath(in); got != want {
			t.Errorf("canonicalPath(%q) = %q, want %q", in, got, want)
		}
	}
	for _, in := range []string{
		metrics + "namespaces/ns/pods%2F..%2F..%2Fsecrets", metrics + "namespaces/ns/pods%2F%2Fmetric", metrics + "namespaces/ns/pods%252F%2Fa",
		metrics + "namespaces/ns%2F..%2F..%2Fx",
	} {
		r := httptest.NewRequest(http.MethodGet, in, nil)
		if got, err := Canonicalize(r, in, ""); err == nil || got != r {
			t.Errorf("Canonicalize(%q) = %v, %v, want an error", in, got.URL, err)
		}
	}
}

func TestCanonicalizeChangesPathAndRawPath(t *testing.T) {
	const in, want = "/apis/custom.metrics.k8s.io/v1beta1/nodes%2Fa%20b%2Fm", "/apis/custom.metrics.k8s.io/v1beta1/nodes/a%20b/m"
	r := httptest.NewRequest(http.MethodGet, in+"?a=%2F", nil)
	got, err := Canonicalize(r, in, "a=%2F")
	if err != nil {
		t.Fatal(err)
	}
	if got.RequestURI != want+"?a=%2F" || RawPath(got.URL) != want || got.URL.EscapedPath() != want || got.URL.RawQuery != "a=%2F" {
		t.Errorf("Canonicalize(%q) = %q %q, want %q", in, got.RequestURI, got.URL, want)
	}
	if r.RequestURI != in+"?a=%2F" || r.URL.RawPath != in {
		t.Errorf("argument of Canonicalize = %q %q after the call, want it unchanged", r.RequestURI, r.URL)
	}
}

// (*url.URL).EscapedPath escapes a path again if it has bytes such as "|", and an escaped slash becomes a slash.
func TestRawPathKeepsClientBytes(t *testing.T) {
	for in, want := range map[string]string{"/a%2Fb|c": "/a%2Fb|c", "/a|b": "/a|b", "/a%2Fb": "/a%2Fb", "/a b": "/a%20b", "/a": "/a"} {
		u := &url.URL{Path: in}
		if in != "/a b" {
			var err error
			if u, err = url.ParseRequestURI(in); err != nil {
				t.Fatal(err)
			}
		}
		if got := RawPath(u); got != want {
			t.Errorf("RawPath(%q) = %q, want %q", in, got, want)
		}
	}
	if got := RawPath(&url.URL{Path: "/other", RawPath: "/a%2Fb"}); got != "/other" {
		t.Errorf("RawPath of a URL whose Path was changed = %q, want %q", got, "/other")
	}
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
			t.Errorf("LongRunning(%s) = %v, want %v", target, got, want)
		}
	}
	if LongRunning(nil) {
		t.Error("LongRunning(nil) = true, want false")
	}
}

// The extension-apiserver-authentication Role grants a watch of one name; it works only if the name is in the attributes.
func TestWatchOfOneNameHasNameInAttributes(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/kube-system/configmaps?watch=1&fieldSelector=metadata.name%3Dx", nil)
	var info *apirequest.RequestInfo
	info, err := NewResolver().Info(r)
	if err != nil || info.Name != "x" || info.Verb != "watch" {
		t.Errorf("Info of a watch of one name = %+v with the error %v, want verb watch and name x", info, err)
	}
}

func TestAuditID(t *testing.T) {
	ctx := t.Context()
	if got := AuditID(ctx); got != "" {
		t.Errorf("AuditID outside a request = %q, want none", got)
	}
	if got := AuditID(WithAuditID(ctx, "a")); got != "a" {
		t.Errorf("AuditID = %q, want a", got)
	}
}
