package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/request"
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

// console is a backend whose consoles take a websocket and close it, and count.
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

func TestA29ARightToReadAndAConsole(t *testing.T) {
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
			b.remote(t, apiservice.Options{}, console(&dialled))
			l := b.listen(t, time.Second)
			res := l.ask(t, "GET "+foo+"/console HTTP/1.1", "Host: a", "Test-User: alice", "Connection: Upgrade", "Upgrade: websocket")
			if res.StatusCode != test.code || (dialled.Load() > 0) != (test.code == 101) {
				t.Errorf("%s, and the backend was asked %d times", res.Status, dialled.Load())
			}
			_ = l.stop()
			if e := b.events[0]; (e.Annotations["portico.dev/upgraded"] == "true") != (test.code == 101) {
				t.Errorf("event %+v", e)
			}
		})
	}
}

func TestA30WebsocketsOfOtherOrigins(t *testing.T) {
	for _, test := range []struct {
		name, origin string
		code         int
	}{
		{"A30 no browser", "", 101},
		{"A30 our own page", "https://front.example:6443", 101},
		{"A30 our own page, spelled by a client of websockets", "wss://FRONT.example:6443", 101},
		{"A30 an allowed page", "https://ui.example.com", 101},
		{"A30 another page", "https://evil.example", 403},
		{"A30 another port", "https://front.example", 403},
		{"A30 no page at all", "null", 403},
		{"A30 nonsense", "https://%zz", 403},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench("alice *")
			b.config.CORSAllowedOrigins = []string{`^https://ui\.example\.com$`}
			var dialled atomic.Int64
			b.remote(t, apiservice.Options{}, console(&dialled))
			l := b.listen(t, time.Second)
			lines := []string{"GET " + foo + "/console HTTP/1.1", "Host: front.example:6443", "Test-User: alice", "Connection: Upgrade", "Upgrade: websocket"}
			if test.origin != "" {
				lines = append(lines, "Origin: "+test.origin)
			}
			res := l.ask(t, lines...)
			if res.StatusCode != test.code || (dialled.Load() > 0) != (test.code == 101) {
				t.Errorf("%s, and the backend was asked %d times", res.Status, dialled.Load())
			}
		})
	}
}

// A20, A1 to A9 and A16 to A21 on the assembled chain, with a backend that counts: what is refused never reached it.
func TestWhatNeverReachesABackend(t *testing.T) {
	b := newBench("alice *")
	var arrived atomic.Int64
	b.remote(t, apiservice.Options{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
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
				t.Errorf("answered %s, want %d", res.Status, c.code)
			}
			if arrived.Load() != 0 {
				t.Fatal("the backend was asked")
			}
		})
	}
}

var anAddress = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+|localhost|\[::`)

func TestA26NoAddressIsToldToClients(t *testing.T) {
	b := newBench("alice *")
	backend := b.remote(t, apiservice.Options{}, nil)
	takePlaces(t, backend)
	w := b.do(t, http.MethodGet, foo, "Test-User: alice")
	for text := range map[string]bool{w.Body.String(): true, headerText(w.Header()): true} {
		if anAddress.MatchString(text) {
			t.Errorf("told %s", text)
		}
	}
}

func headerText(h http.Header) string {
	var s strings.Builder
	_ = h.Write(&s) // a strings.Builder takes everything
	return s.String()
}

func TestD11DebugPathsAreAuthorised(t *testing.T) {
	for _, path := range []string{"/debug/aggregation", "/debug/pprof/", "/metrics", "/configz", "/flagz", "/statusz", "/logs"} {
		b := newBench("alice get /api")
		if w := b.do(t, http.MethodGet, path, "Test-User: alice"); w.Code != http.StatusForbidden || len(b.reached) != 0 {
			t.Errorf("D11 %s: %d", path, w.Code)
		}
	}
}

// Whatever a client asks for, what the backend gets is what was authorised: the same bytes, and the same meaning.
func FuzzA17OneReading(f *testing.F) {
	for _, target := range []string{
		foo, foo + "/status?x=%2f&y", "/apis/up.example.com/v1/namespaces/a/foos/b%2F..%2Fc", "/apis/up.example.com/v1/foos/..;/x",
		"/apis/up.example.com/v1/watch/foos", "/apis/up.example.com/v1/foos/%e2%80%ae?watch=1&watch=0", "//apis/up.example.com/v1/foos",
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
		b.remote(t, apiservice.Options{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r }))
		b.chain(t).ServeHTTP(httptest.NewRecorder(), r)
		if got == nil {
			return
		}
		if got.RequestURI != r.RequestURI || got.Method != r.Method {
			t.Errorf("%s %s became %s %s", r.Method, r.RequestURI, got.Method, got.RequestURI)
		}
		info, err := request.NewResolver().Info(got)
		if err != nil || len(asked.questions) != 1 || asked.questions[0] != meaning(info) {
			t.Errorf("authorised %q, the backend reads %q (%v)", asked.questions, meaning(info), err)
		}
	})
}

// recordingAuthorizer allows everything and keeps what it was asked.
type recordingAuthorizer struct{ questions []string }

func (n *recordingAuthorizer) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	n.questions = append(n.questions, strings.Join([]string{a.GetVerb(), a.GetAPIGroup(), a.GetAPIVersion(), a.GetNamespace(),
		a.GetResource(), a.GetSubresource(), a.GetName(), a.GetPath()}, "|"))
	return authorizer.DecisionAllow, "", nil
}

func meaning(i *apirequest.RequestInfo) string {
	return strings.Join([]string{i.Verb, i.APIGroup, i.APIVersion, i.Namespace, i.Resource, i.Subresource, i.Name, i.Path}, "|")
}
