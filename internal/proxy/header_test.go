package proxy

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/filters"
	"portico.dev/internal/transport"
)

// Headers that clients can send to take another identity at the backend, or to make the next hop drop their identity.
func TestA7A8A9ForgedHeadersAreDropped(t *testing.T) {
	w := newTestEnv(t, Config{IdentityHeaders: []string{"Front-Proxy-User", "Front-Proxy-Group"}, IdentityHeaderPrefixes: []string{"Front-Proxy-Extra-"}}, transport.Options{})
	var b recorder
	w.backend(w.serve(&b))
	forged := []string{
		"X-Remote-User: root", "x-remote-user: root", "X_Remote_User: root", "X-Remote_User: root", "X_REMOTE_USER: root",
		"X-Remote-Group: system:masters", "X_Remote_Group: system:masters", "X-Remote_Group: system:masters",
		"X-Remote-Uid: 0", "X-Remote-Extra-Scopes: all", "x_remote-extra_scopes: all",
		"Impersonate-User: root", "Impersonate-Group: system:masters", "Impersonate_User: root", "Impersonate-Extra-Scopes: all",
		"Authorization: Bearer canary", "Proxy-Authorization: Basic canary", "Cookie: canary", "Forwarded: for=1.2.3.4",
		"X-Forwarded-For: 1.2.3.4", "X-Forwarded-Host: evil.example", "X-Forwarded-Proto: http", "X-Forwarded-Uri: /x",
		"X_Forwarded_For: 1.2.3.4", "X-Real-Ip: 1.2.3.4", "X-Original-Url: /x", "Audit-Id: forged", "Te: trailers",
		"X.Remote.User: root", "X-Remote.Group: system:masters", "x!remote!group: system:masters", "X~Remote|Uid: 0", "X.Remote-Extra_Scopes: all",
		"Impersonate.User: root", "IMPERSONATE+GROUP: system:masters", "X.Forwarded.For: 1.2.3.4", "X_Real.Ip: 1.2.3.4", "Proxy.Authorization: canary",
		"Audit_Id: forged", "Front-Proxy-User: root", "front.proxy_user: root", "FRONT_PROXY_GROUP: system:masters", "Front-Proxy-Extra-Scopes: all", "front.proxy.extra.scopes: all",
		"Keep-Alive: 300", "Proxy-Connection: close", "Trailer: X-Remote-User", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__",
	}
	nominations := []string{
		"Connection: close, X-Remote-User, x-remote-group, Impersonate-User, Authorization, Content-Length, X-Forwarded-For, Audit-Id, Via",
		"connection: X-REMOTE-GROUP\r\nConnection: X-Remote-Uid",
		"Connection: keep-alive",
	}
	for _, nomination := range nominations {
		t.Run(nomination, func(t *testing.T) {
			c, r := w.dial()
			lines := append([]string{"GET " + resource + " HTTP/1.1", "Host: front.example", nomination, "X-Mine: kept"}, forged...)
			send(t, c, lines...)
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("status = %s, want 200", resp.Status)
			}
			checkForwarded(t, b.last(t).Header)
		})
	}
	t.Run("over HTTP/2", func(t *testing.T) {
		r := w.request(http.MethodGet, resource, nil)
		r.Host = "front.example"
		r.Header.Set("X-Mine", "kept")
		for _, line := range forged {
			name, value, _ := strings.Cut(line, ": ")
			switch strings.ToLower(name) {
			case "keep-alive", "proxy-connection", "trailer", "upgrade": // refused by the protocol
			default:
				r.Header[name] = append(r.Header[name], value)
			}
		}
		if a := w.do(w.client(), r); a.StatusCode != http.StatusOK {
			t.Fatalf("status = %s, want 200", a.Status)
		}
		checkForwarded(t, b.last(t).Header)
	})
}

func checkForwarded(t *testing.T, got http.Header) {
	t.Helper()
	got = got.Clone()
	for name, values := range map[string][]string{
		"X-Remote-User": {"alice"}, "X-Remote-Uid": {"u-1"}, "X-Remote-Group": {"dev", "system:authenticated"},
		"X-Forwarded-For": {"127.0.0.1"}, "X-Forwarded-Host": {"front.example"}, "X-Forwarded-Proto": {"https"},
		"Audit-Id": {"audit-1"}, "Via": {"1.1 portico"}, "X-Mine": {"kept"},
		"Te": {"trailers"}, // sent by this proxy for every request
	} {
		if !slices.Equal(got[name], values) {
			t.Errorf("%s at the backend = %q, want %q", name, got[name], values)
		}
		delete(got, name)
	}
	for _, harmless := range []string{"Accept-Encoding", "User-Agent"} {
		delete(got, harmless)
	}
	if len(got) > 0 {
		t.Errorf("further headers at the backend = %v, want none", got)
	}
}

func TestA7ClientTrailersAreDropped(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{})
	var b recorder
	w.backend(w.serve(&b))
	r := w.request(http.MethodPost, resource, bytes.NewReader([]byte("body")))
	r.ContentLength = -1
	r.Trailer = http.Header{"X-Remote-User": {"root"}, "X-Other": {"x"}}
	w.do(w.client(), r)
	if got := b.last(t); len(got.Trailer) != 0 || got.Header.Get("X-Remote-User") != "alice" {
		t.Errorf("trailer = %v, user = %q, want none and alice", got.Trailer, got.Header.Get("X-Remote-User"))
	}
}

func TestA16A21TargetIsForwardedByteForByte(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{})
	for _, proto := range []string{"h2", "http/1.1"} {
		var b recorder
		w.backend(w.serveProtos(&b, proto))
		for _, target := range []string{
			resource,
			resource + "?",
			resource + "?b=2&a=1&a=%20&%7a",
			resource + "?x=1;y=2",
			resource + "/",
			"/apis/metrics.example.com/v1/namespaces/ns1/foos/a%2F..%2F..%2Fns2",
			"/apis/metrics.example.com/v1/foos/a%2fb%25c%41",
			"/apis/metrics.example.com/v1/foos/a:b@c!$&'()*+,=",
			"/apis/metrics.example.com/v1/foos/a{b}|c",
			"/apis/custom.metrics.k8s.io/v1beta1/namespaces/ns/pods/*/requests",
			"/apis/metrics.example.com/v1/foos/%C3%BC",
		} {
			c, r := w.dial()
			send(t, c, "GET "+target+" HTTP/1.1", "Host: front.example")
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%s: status = %s, want 200", target, resp.Status)
				continue
			}
			if got := b.last(t); got.RequestURI != target || got.Host != serviceName {
				t.Errorf("%s over %s arrived as %s for host %s, want it unchanged for %s", target, proto, got.RequestURI, got.Host, serviceName)
			}
		}
	}
}

func TestA17PartiallyRewrittenPathReturns500(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{})
	var b recorder
	w.backend(w.serve(&b))
	w.prepare = func(_ http.ResponseWriter, r *http.Request) { r.URL.Path = "/apis/elsewhere/v1/foos" }
	if a := w.get("/apis/metrics.example.com/v1/foos/a%2Fb"); a.StatusCode != http.StatusInternalServerError {
		t.Errorf("status of a path that was rewritten in one spelling only = %s, want 500", a.Status)
	}
	if b.count() != 0 {
		t.Errorf("%d requests were forwarded, want 0", b.count())
	}
}

func TestA11UnencodableIdentityIsRejected(t *testing.T) {
	many := map[string][]string{}
	for i := range 10_000 {
		many[fmt.Sprintf("key-%d", i)] = []string{strings.Repeat("v", 40)}
	}
	tests := []struct {
		name string
		user *user.DefaultInfo
		code int
	}{
		{"no name", &user.DefaultInfo{}, http.StatusForbidden},
		{"line break in the name", &user.DefaultInfo{Name: "a\r\nX-Remote-Group: system:masters"}, http.StatusBadRequest},
		{"NUL in a group", &user.DefaultInfo{Name: "a", Groups: []string{"b\x00c"}}, http.StatusBadRequest},
		{"tab in the uid", &user.DefaultInfo{Name: "a", UID: "b\tc"}, http.StatusBadRequest},
		{"line feed in a value of extra", &user.DefaultInfo{Name: "a", Extra: map[string][]string{"k": {"v\nw"}}}, http.StatusBadRequest},
		{"a blank before the name, which receivers trim", &user.DefaultInfo{Name: " root"}, http.StatusBadRequest},
		{"a blank after a group", &user.DefaultInfo{Name: "a", Groups: []string{"system:masters "}}, http.StatusBadRequest},
		{"ten thousand keys", &user.DefaultInfo{Name: "a", Extra: many}, http.StatusRequestHeaderFieldsTooLarge},
		{"a value of a mebibyte", &user.DefaultInfo{Name: "a", Groups: []string{strings.Repeat("g", 1<<20)}}, http.StatusRequestHeaderFieldsTooLarge},
	}
	w := newTestEnv(t, Config{}, transport.Options{})
	var b recorder
	w.backend(w.serve(&b))
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w.user = test.user
			a := w.get(resource)
			if a.StatusCode != test.code || a.status(t).Code != int32(test.code) {
				t.Errorf("response = %s: %s, want %d", a.Status, a.body, test.code)
			}
		})
	}
	w.user = nil
	if a := w.get(resource); a.StatusCode != http.StatusInternalServerError {
		t.Errorf("status without a user = %s, want 500", a.Status)
	}
	if b.count() != 0 {
		t.Errorf("%d requests were forwarded, want 0", b.count())
	}
}

func TestD12TraceContextIsLimited(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{})
	var b recorder
	w.backend(w.serve(&b))
	r := w.request(http.MethodGet, resource, nil)
	r.Header.Set("Baggage", "user=alice")
	r.Header.Set("Tracestate", strings.Repeat("a", maxContextBytes+1))
	r.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	w.do(w.client(), r)
	if h := b.last(t).Header; h.Get("Baggage") != "" || h.Get("Tracestate") != "" || h.Get("Traceparent") == "" {
		t.Errorf("headers at the backend = %v, want Traceparent, and neither Baggage nor Tracestate", h)
	}
}

func TestA23ForwardingLoopReturns508(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{})
	// The backend is the front door itself: it forwards the request and receives it again with its mark.
	w.backend(w.front)
	a := w.get(resource)
	// The certificate of this environment's front door is also valid for the backend's name.
	if a.StatusCode != http.StatusLoopDetected || a.status(t).Reason != "LoopDetected" {
		t.Errorf("response = %s %s, want 508 LoopDetected", a.Status, a.body)
	}
	for via, loop := range map[string]bool{
		"1.1 portico": true, "2 portico (x)": true, "1.1 vegur, 1.1 portico": true, "1.1 porticoes": false, "portico": false, "1.1 vegur": false,
	} {
		if got := Passed(http.Header{"Via": {via}}, Pseudonym); got != loop {
			t.Errorf("Passed(Via %q) = %t, want %t", via, got, loop)
		}
	}
	other := New(Config{Pseudonym: "other"})
	if Passed(http.Header{"Via": {"1.1 portico"}}, "other") || !Passed(http.Header{"Via": other.viaOf([]string{"1.1 portico"})}, "other") {
		t.Error("Passed() of a server with another pseudonym is wrong, want it to recognise only its own pseudonym")
	}
}

// careless returns a name as the most lenient backend reads it: every sign that is neither a letter nor a digit becomes the
// same sign, and the case is dropped.
func careless(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		}
		return '-'
	}, name)
}

func FuzzIdentityHeadersAreWithheld(f *testing.F) {
	for _, s := range []string{"X_Remote-User", "x-remote-extra_a", "Impersonate-Uid", "accept", "X-Remote-Group ", "proxy_x", "ImpersonAte-0\"",
		"X.Remote.User", "x!remote#group", "X-Remote-User\x00", "Front.Proxy_User", "front~proxy|extra^a", "Content.Length", "A b", "\u212aey", ""} {
		f.Add(s)
	}
	p := New(Config{IdentityHeaders: []string{"Front-Proxy-User"}, IdentityHeaderPrefixes: []string{"Front-Proxy-Extra-"}})
	f.Fuzz(func(t *testing.T, name string) {
		folded := careless(name)
		identity := folded == "front-proxy-user"
		for _, prefix := range []string{"x-remote-", "impersonate-", "front-proxy-extra-"} {
			identity = identity || strings.HasPrefix(folded, prefix)
		}
		passes := !p.withheldFromBackend(name)
		if passes && (identity || strings.HasPrefix(folded, "x-forwarded-") || strings.HasPrefix(folded, "proxy-") || folded == "authorization" || folded == "content-length") {
			t.Errorf("%q passes to a backend, want it withheld", name)
		}
		if !p.withheldFromClient(name) && (identity || folded == "alt-svc" || folded == "strict-transport-security" || folded == "clear-site-data" || folded == "set-cookie") {
			t.Errorf("%q passes to a client, want it withheld", name)
		}
		token := len(name) > 0 && strings.IndexFunc(name, func(r rune) bool {
			return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"(),/:;<=>?@[\\]{}", r)
		}) < 0
		if !token && (passes || !p.withheldFromClient(name)) {
			t.Errorf("%q is not a valid name and passes, want it withheld", name)
		}
		if harmless := strings.HasPrefix(folded, "x-mine"); harmless && token && !passes {
			t.Errorf("%q is withheld, want it to pass", name)
		}
	})
}

// Filters, the access log and the audit event read the client's header after the request was forwarded.
func TestForwardingKeepsClientHeader(t *testing.T) {
	for name, dest := range map[string]Destination{"as it is": {}, "converted": {ConvertTable: true}} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/apis/example.com/v1/nodes", nil)
			r.Header = http.Header{
				"Accept": {"application/json;as=Table;v=v1;g=meta.k8s.io"}, "Connection": {"X-Hop"}, "X-Hop": {"1"}, "Cookie": {"c"}, "If-None-Match": {"e"},
				"Sec-Websocket-Protocol": {bearerProtocol + "abc, v4.channel.k8s.io"}, "Via": {"1.0 other"}, "Traceparent": {strings.Repeat("x", maxContextBytes+1)},
			}
			before := r.Header.Clone()
			x := &exchange{proxy: New(Config{}), r: r, request: filters.RequestOf(r), dest: dest, info: &apirequest.RequestInfo{IsResourceRequest: true, Verb: "list"}}
			out := x.requestHeader()
			x.conversionFor(out)
			if err := writeIdentity(out, &RequestHeaders, &user.DefaultInfo{Name: "alice"}, &x.values); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(r.Header, before) {
				t.Errorf("client's header after the request = %v, want %v", r.Header, before)
			}
		})
	}
}
