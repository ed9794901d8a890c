package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/request"
	"portico.dev/internal/routetable"
)

// ask sends lines over one HTTP/1.1 connection and returns the first answer.
func (l *listening) ask(t *testing.T, lines ...string) *http.Response {
	t.Helper()
	conn, err := tls.Dial("tcp", l.address, &tls.Config{RootCAs: l.roots, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, strings.Join(lines, "\r\n")+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// console is a backend that accepts the upgrade to a websocket, closes it and counts the requests.
func console(dialled *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		dialled.Add(1)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		_ = conn.Close()
	})
}

func TestA29UpgradeRequiresCreateInStrictMode(t *testing.T) {
	for _, test := range []struct {
		name    string
		strict  bool
		allowed []string
		code    int
	}{
		{"A29 get alone, as kube-apiserver", false, []string{"alice get foos x"}, 101},
		{"A29 get alone, strict", true, []string{"alice get foos x"}, 403},
		{"A29 get and create, strict", true, []string{"alice get foos x", "alice create foos x"}, 101},
		{"A29 create alone, strict", true, []string{"alice create foos x"}, 403},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(test.allowed...)
			b.config.UpgradesNeedCreate = test.strict
			var dialled atomic.Int64
			b.remote(t, routetable.Options{}, console(&dialled))
			l := b.listen(t, time.Second)
			res := l.ask(t, "GET "+foo+"/console HTTP/1.1", "Host: a", "Test-User: alice", "Connection: Upgrade", "Upgrade: websocket")
			if res.StatusCode != test.code || (dialled.Load() > 0) != (test.code == 101) {
				t.Errorf("upgrade of the console with the rights %q = %s with %d requests to the backend, want %d, and a request only for 101", test.allowed, res.Status, dialled.Load(), test.code)
			}
			_ = l.stop()
			if e := b.events[0]; (e.Annotations["portico.dev/upgraded"] == "true") != (test.code == 101) {
				t.Errorf("audit event of the upgrade = %+v, want the annotation portico.dev/upgraded only for 101, code %d", e, test.code)
			}
		})
	}
}

func TestA30WebSocketFromForeignOriginIsRejected(t *testing.T) {
	for _, test := range []struct {
		name, origin string
		code         int
		more         string // another Origin field
	}{
		{"A30 no browser", "", 101, ""},
		{"A30 our own page", "https://front.example:6443", 101, ""},
		{"A30 our own page, spelled by a client of websockets", "wss://FRONT.example:6443", 101, ""},
		{"A30 an allowed page", "https://ui.example.com", 101, ""},
		{"A30 another page", "https://evil.example", 403, ""},
		{"A30 another port", "https://front.example", 403, ""},
		{"A30 no page at all", "null", 403, ""},
		{"A30 nonsense", "https://%zz", 403, ""},
		{"A30 a page on a loopback host, through kubectl proxy", "http://localhost:8001", 101, ""},
		{"A30 a page on a loopback address", "http://[::1]:8001", 101, ""},
		{"A30 another page, through a proxy that appends a loopback host", "https://console.example", 101, "http://localhost"},
		{"A30 another page, through a proxy that appends an allowed page", "https://console.example", 101, "https://ui.example.com"},
		{"A30 a name that begins like a loopback host", "http://localhost.evil.example", 403, ""},
		{"A30 two other pages", "https://console.example", 403, "https://evil.example"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench("alice *")
			b.config.CORSAllowedOrigins = []string{`^https://ui\.example\.com$`}
			var dialled atomic.Int64
			b.remote(t, routetable.Options{}, console(&dialled))
			l := b.listen(t, time.Second)
			lines := []string{"GET " + foo + "/console HTTP/1.1", "Host: front.example:6443", "Test-User: alice", "Connection: Upgrade", "Upgrade: websocket"}
			if test.origin != "" {
				lines = append(lines, "Origin: "+test.origin)
			}
			if test.more != "" {
				lines = append(lines, "Origin: "+test.more)
			}
			res := l.ask(t, lines...)
			if res.StatusCode != test.code || (dialled.Load() > 0) != (test.code == 101) {
				t.Errorf("websocket with the Origin fields %q and %q = %s with %d requests to the backend, want %d, and a request only for 101", test.origin, test.more, res.Status, dialled.Load(), test.code)
			}
		})
	}
}

// A gateway's clients are API servers, which forward the Origin of any page, and check none.
func TestGatewayDoesNotCheckOriginOfAPIServers(t *testing.T) {
	b := newBench("alice *")
	b.config.AnyOrigin = true
	var dialled atomic.Int64
	b.remote(t, routetable.Options{}, console(&dialled))
	l := b.listen(t, time.Second)
	res := l.ask(t, "GET "+foo+"/console HTTP/1.1", "Host: gateway", "Test-User: alice", "Connection: Upgrade", "Upgrade: websocket", "Origin: https://console.example")
	if res.StatusCode != http.StatusSwitchingProtocols {
		t.Errorf("websocket with a foreign Origin on a chain with AnyOrigin = %s, want 101", res.Status)
	}
}

// A20, A1 to A9 and A16 to A21 on the assembled chain. The backend counts requests: a rejected request never reaches it.
func TestRejectedRequestsDoNotReachBackend(t *testing.T) {
	b := newBench("alice *")
	var arrived atomic.Int64
	b.remote(t, routetable.Options{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
	l := b.listen(t, time.Second)
	for name, c := range map[string]struct {
		request string
		headers []string
		code    int
	}{
		"A2 h2c":                         {"GET " + foo, []string{"Connection: Upgrade", "Upgrade: h2c"}, 400},
		"A2 two protocols":               {"GET " + foo, []string{"Connection: Upgrade", "Upgrade: websocket, h2c"}, 400},
		"A3 a group-version's discovery": {"GET /apis/up.example.com/v1", []string{"Connection: Upgrade", "Upgrade: websocket"}, 400},
		"A8 a tab in a header's name":    {"GET " + foo, []string{"X-Remote-Group\t: system:masters"}, 400},
		"A10 nobody may be impersonated": {"GET " + foo, []string{"Impersonate-Group: system:masters"}, 400},
		"A16 encoded slash":              {"GET /apis/up.example.com/v1/namespaces/a/foos/x%2F..%2F..%2Fb", nil, 400},
		"A16 dot segments":               {"GET /apis/up.example.com/v1/namespaces/../foos", nil, 400},
		"A16 doubly encoded":             {"GET /apis/up.example.com/v1/foos/%252e%252e", nil, 400},
		"A16 backslash":                  {"GET /apis/up.example.com/v1/foos/a\\b", nil, 400},
		"A16 doubly encoded in a tail":   {"GET " + foo + "/console/%252e%252e/y", nil, 400},
		"A16 dots between escapes":       {"GET " + foo + "/console/x%2F..%2F..%2Fy", nil, 400},
		"A17 slash in a subresource":     {"GET " + foo + "/console%2Fx", nil, 400},
		"A17 slash in a resource":        {"GET /apis/up.example.com/v1/namespaces/n/foos%2Fx%2Fconsole", nil, 400},
		"A16 two slashes":                {"GET /apis//up.example.com/v1/foos", nil, 400},
		"A18 absolute form":              {"GET https://169.254.169.254" + foo, nil, 400},
		"A18 TRACE":                      {"TRACE " + foo, nil, 405},
		"A21 semicolons":                 {"GET " + foo + "?a;b", nil, 400},
		"A21 a parameter twice":          {"GET " + foo + "?limit=5&limit=500", nil, 400},
		"A21 twenty thousand":            {"GET " + foo + "?" + strings.Repeat("a&", 20000), nil, 414},
		"A30 a token in the query":       {"GET " + foo + "?access_token=alice", []string{"Test-User: bad"}, 401},
		"A31 nobody in particular":       {"GET " + foo, []string{"Test-User:", "X-Remote-User: root"}, 401},
		"A33 one hop of a peer":          {"GET " + foo, []string{"Via: 1.1 portico"}, 508},
	} {
		t.Run(name, func(t *testing.T) {
			lines := []string{c.request + " HTTP/1.1", "Host: a"}
			if !strings.Contains(strings.Join(c.headers, ","), "Test-User") {
				lines = append(lines, "Test-User: alice")
			}
			if res := l.ask(t, append(lines, c.headers...)...); res.StatusCode != c.code {
				t.Errorf("%s with the fields %q = %s, want %d", c.request, c.headers, res.Status, c.code)
			}
			if arrived.Load() != 0 {
				t.Fatalf("%d requests reached the backend after %s, want 0", arrived.Load(), c.request)
			}
		})
	}
}

var anAddress = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+|localhost|\[::`)

func TestA26BackendAddressIsHiddenFromClients(t *testing.T) {
	b := newBench("alice *")
	backend := b.remote(t, routetable.Options{}, nil)
	takePlaces(t, backend)
	w := b.do(t, http.MethodGet, foo, "Test-User: alice")
	for text := range map[string]bool{w.Body.String(): true, headerText(w.Header()): true} {
		if anAddress.MatchString(text) {
			t.Errorf("response of a backend at its limit = %q, want no address", text)
		}
	}
}

func headerText(h http.Header) string {
	var s strings.Builder
	_ = h.Write(&s) // a strings.Builder never fails
	return s.String()
}

func TestD11DebugPathsRequireAuthorization(t *testing.T) {
	for _, path := range []string{"/debug/aggregation", "/debug/pprof/", "/metrics", "/configz", "/flagz", "/statusz", "/logs"} {
		b := newBench("alice get /api")
		if w := b.do(t, http.MethodGet, path, "Test-User: alice"); w.Code != http.StatusForbidden || len(b.reached) != 0 {
			t.Errorf("D11: GET %s without the right = %d with %d calls of the handler, want 403 and 0", path, w.Code, len(b.reached))
		}
	}
}

// A backend receives exactly the request that was authorized: the same bytes with the same meaning.
func FuzzA17BackendReceivesAuthorizedRequest(f *testing.F) {
	for _, target := range []string{
		foo, foo + "/status?x=%2f&y", "/apis/up.example.com/v1/namespaces/a/foos/b%2F..%2Fc", "/apis/up.example.com/v1/foos/..;/x",
		"/apis/up.example.com/v1/watch/foos", "/apis/up.example.com/v1/foos/%e2%80%ae?watch=1&watch=0", "//apis/up.example.com/v1/foos",
		foo + "/console/x%2Fy%252Fz//", foo + "/console/%252e%252e/|", foo + "%2Fconsole/x", "/apis/up.example.com/v1/foos//console/x",
		"/apis/up.example.com/v1/foos/a%20b", "/apis/up.example.com/v1/foos/a+b?fieldSelector=metadata.name%3Dx",
	} {
		f.Add(http.MethodGet, target)
		f.Add(http.MethodDelete, target)
	}
	f.Fuzz(func(t *testing.T, method, target string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + target + " HTTP/1.1\r\nHost: a\r\nTest-User: alice\r\n\r\n")))
		if err != nil || !strings.HasPrefix(target, "/apis/up.example.com/v1") {
			return
		}
		b := newBench()
		asked := &recordingAuthorizer{}
		b.config.Authorizer = asked
		var got *http.Request
		b.remote(t, routetable.Options{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r }))
		b.chain(t).ServeHTTP(httptest.NewRecorder(), r)
		if got == nil {
			return
		}
		if got.RequestURI != r.RequestURI || got.Method != r.Method {
			t.Errorf("%s %s arrived at the backend as %s %s, want the same method and target", r.Method, r.RequestURI, got.Method, got.RequestURI)
		}
		info, err := request.NewResolver().Info(got)
		if err != nil || len(asked.questions) != 1 || asked.questions[0] != meaning(info) {
			t.Errorf("authorization checks for %s %s = %q, want one for %q, as the backend reads the request (error %v)", r.Method, r.RequestURI, asked.questions, meaning(info), err)
		}
		checkSameAttributes(t, got)
	})
}

// checkSameAttributes checks that a backend that does not decode the path reads the same authorization attributes in it.
func checkSameAttributes(t *testing.T, r *http.Request) {
	t.Helper()
	path, _, _ := strings.Cut(r.RequestURI, "?")
	raw, err := request.NewResolver().Info(&http.Request{Method: r.Method, URL: &url.URL{Path: path, RawQuery: r.URL.RawQuery}})
	if err != nil {
		t.Errorf("Info of the raw path %q failed: %v, want no error", path, err)
		return
	}
	decoded, err := request.NewResolver().Info(r)
	if err != nil {
		t.Errorf("Info of the decoded path %q failed: %v, want no error", path, err)
		return
	}
	for _, pair := range [][2]string{
		{raw.Verb, decoded.Verb}, {raw.APIGroup, decoded.APIGroup}, {raw.APIVersion, decoded.APIVersion}, {raw.Namespace, decoded.Namespace},
		{raw.Resource, decoded.Resource}, {raw.Subresource, decoded.Subresource}, {raw.Name, decoded.Name},
	} {
		if text, err := url.PathUnescape(pair[0]); err != nil || text != pair[1] && pair[0] != pair[1] { // a name from a selector is not escaped
			t.Errorf("attribute of %q = %q in the raw path and %q in the decoded path, want equal values", path, pair[0], pair[1])
		}
	}
}

// Escaped slashes, double escapes and empty segments below a subresource reach a backend unchanged. The attributes derive from the path
// before the tail.
func TestA17SubresourceTailIsForwardedUnchanged(t *testing.T) {
	b := newBench()
	asked := &recordingAuthorizer{}
	b.config.Authorizer = asked
	arrived := make(chan string, 1)
	b.remote(t, routetable.Options{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { arrived <- r.RequestURI }))
	l := b.listen(t, time.Second)
	for _, tail := range []string{"/x%2Fy", "/x%2fy", "/x%252Fy", "/100%25", "//x", "/x//y/", "/x%2Fy|z"} {
		for proto, client := range map[string]*http.Client{"HTTP/1.1": l.client(t, false), "HTTP/2.0": l.client(t, true)} {
			asked.questions = nil
			target := foo + "/console" + tail + "?a=%2F"
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+l.address, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.URL.Opaque, r.URL.RawQuery = foo+"/console"+tail, "a=%2F"
			r.Header.Set("Test-User", "alice")
			resp, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK || resp.Proto != proto {
				t.Errorf("GET %s over %s = %s over %s, want 200", target, proto, resp.Status, resp.Proto)
				continue
			}
			if got := <-arrived; got != target {
				t.Errorf("target of GET %s over %s at the backend = %s, want it unchanged", target, proto, got)
			}
			if want := "get|up.example.com|v1|n|foos|console|x|"; len(asked.questions) != 1 || !strings.HasPrefix(asked.questions[0], want) {
				t.Errorf("GET %s over %s was authorized as %q, want %q", target, proto, asked.questions, want)
			}
		}
	}
}

// A custom metrics path with escaped slashes is authorized, audited and forwarded as the path that it decodes to.
func TestA17CustomMetricsPathIsCanonicalized(t *testing.T) {
	b := newBench()
	asked := &recordingAuthorizer{}
	b.config.Authorizer = asked
	var reached *http.Request
	b.handler = func(_ http.ResponseWriter, r *http.Request) { reached = r }
	const want = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/ns/pods/%2A/metric"
	w := b.do(t, http.MethodGet, "/apis/custom.metrics.k8s.io/v1beta1/namespaces/ns/pods%2F%2A%2Fmetric", "Test-User: alice")
	if w.Code != http.StatusOK {
		t.Fatalf("status %d, want 200: %s", w.Code, w.Body)
	}
	if reached.RequestURI != want || reached.URL.RawPath != want && reached.URL.EscapedPath() != want {
		t.Errorf("target at the handler = %q with the URL %q, want %q", reached.RequestURI, reached.URL, want)
	}
	const attributes = "get|custom.metrics.k8s.io|v1beta1|ns|pods|metric|*|/apis/custom.metrics.k8s.io/v1beta1/namespaces/ns/pods/*/metric"
	if len(asked.questions) != 1 || asked.questions[0] != attributes {
		t.Errorf("authorization checks = %q, want %q once", asked.questions, attributes)
	}
	if got := b.events[0].RequestURI; got != want {
		t.Errorf("request URI in the audit event = %q, want %q", got, want)
	}
}

// recordingAuthorizer allows every request and records the attributes.
type recordingAuthorizer struct{ questions []string }

func (n *recordingAuthorizer) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	n.questions = append(n.questions, strings.Join([]string{a.GetVerb(), a.GetAPIGroup(), a.GetAPIVersion(), a.GetNamespace(),
		a.GetResource(), a.GetSubresource(), a.GetName(), a.GetPath()}, "|"))
	return authorizer.DecisionAllow, "", nil
}

func meaning(i *apirequest.RequestInfo) string {
	return strings.Join([]string{i.Verb, i.APIGroup, i.APIVersion, i.Namespace, i.Resource, i.Subresource, i.Name, i.Path}, "|")
}
