package http2_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// seen describes a request in a handler.
func seen(r *http.Request) string {
	body, err := io.ReadAll(r.Body)
	words := []string{r.Method, r.RequestURI, "path " + r.URL.Path}
	add := func(name, v string) {
		if v != "" {
			words = append(words, name+" "+v)
		}
	}
	add("raw", r.URL.RawPath)
	add("query", r.URL.RawQuery)
	if r.URL.ForceQuery {
		words = append(words, "?")
	}
	add("url-host", r.URL.Host)
	add("host", r.Host)
	if r.ContentLength != 0 {
		add("length", fmt.Sprint(r.ContentLength))
	}
	add("header", spelled(r.Header))
	add("body", string(body))
	if err != nil {
		add("error", err.Error())
	}
	add("trailer", spelled(r.Trailer))
	if r.TLS == nil {
		words = append(words, "without TLS")
	}
	if r.Proto != "HTTP/2.0" || r.ProtoMajor != 2 || r.ProtoMinor != 0 || r.RemoteAddr == "" || r.Context().Value(http.LocalAddrContextKey) == nil ||
		r.Close || r.TransferEncoding != nil {
		words = append(words, "and is not HTTP/2")
	}
	return strings.Join(words, " | ")
}

func spelled(h http.Header) string {
	var list []string
	for name, values := range h {
		list = append(list, fmt.Sprintf("%s=%q", name, values))
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// A handler receives the same request on both servers, equal to the request that the client sent.
func TestHandlersReceiveSentRequest(t *testing.T) {
	for _, test := range []struct {
		name   string
		fields []string
		body   []string // DATA frames; nil: the request ends with its header
		after  []string // trailers
		want   string
		// refused is the response of Portico's server to a request that net/http accepts: a status or the code of a reset.
		refused string
		// library is the request in net/http's handler if it differs.
		library string
		// newer is the result of golang.org/x/net, which is newer than net/http's copy: the request in its handler or the code of a
		// reset.
		newer string
	}{
		{name: "a path", fields: request("GET", "/a/b"), want: "GET | /a/b | path /a/b | host example.com"},
		{name: "a query", fields: request("GET", "/a?b=c&d=%2f&&"), want: "GET | /a?b=c&d=%2f&& | path /a | query b=c&d=%2f&& | host example.com"},
		{name: "an empty query", fields: request("GET", "/a?"), want: "GET | /a? | path /a | ? | host example.com"},
		{name: "two question marks", fields: request("GET", "/a?b?c"), want: "GET | /a?b?c | path /a | query b?c | host example.com"},
		{name: "escapes", fields: request("GET", "/a%20b/%2Fc%2fd"), want: "GET | /a%20b/%2Fc%2fd | path /a b//c/d | raw /a%20b/%2Fc%2fd | host example.com"},
		{name: "escapes that need none", fields: request("GET", "/%61"), want: "GET | /%61 | path /a | raw /%61 | host example.com"},
		{name: "characters that need no escape", fields: request("GET", "/a:b@c;d=e,f!$&'()*+~_-."), want: "GET | /a:b@c;d=e,f!$&'()*+~_-. | path /a:b@c;d=e,f!$&'()*+~_-. | raw /a:b@c;d=e,f!$&'()*+~_-. | host example.com"},
		{name: "dots and slashes", fields: request("GET", "//a/../b/./c//"), want: "GET | //a/../b/./c// | path //a/../b/./c// | host example.com"},
		{name: "an asterisk", fields: request("OPTIONS", "*"), want: "OPTIONS | * | path * | host example.com"},
		{name: "any method", fields: request("BREW", "/"), want: "BREW | / | path / | host example.com"},
		{name: "CONNECT", fields: []string{":method", "CONNECT", ":authority", "a:1"}, want: "CONNECT | a:1 | path  | url-host a:1 | host a:1"},
		{name: "another scheme", fields: []string{":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/"}, want: "GET | / | path / | host a"},
		{name: "Host instead of :authority", fields: []string{":method", "GET", ":scheme", "https", ":path", "/", "host", "b"}, want: "GET | / | path / | host b | header Host=[\"b\"]", newer: "GET | / | path / | host b"},
		{name: "Host beside :authority", fields: request("GET", "/", "host", "b"), want: "GET | / | path / | host example.com | header Host=[\"b\"]", refused: "400", newer: "PROTOCOL_ERROR"},
		{name: "Host that is :authority", fields: request("GET", "/", "host", "EXAMPLE.com:443"), want: "GET | / | path / | host example.com | header Host=[\"EXAMPLE.com:443\"]", newer: "PROTOCOL_ERROR"},
		{name: "neither", fields: []string{":method", "GET", ":scheme", "https", ":path", "/"}, want: "GET | / | path /"},
		{name: "headers", fields: request("GET", "/", "accept", "a", "x-some-thing", "b", "accept", "c", "x-empty", ""), want: `GET | / | path / | host example.com | header Accept=["a" "c"] X-Empty=[""] X-Some-Thing=["b"]`},
		{name: "a value with blanks about it", fields: request("GET", "/", "x-a", "\t b c "), want: `GET | / | path / | host example.com | header X-A=["b c"]`, library: `GET | / | path / | host example.com | header X-A=["\t b c "]`},
		{name: "a value beyond ASCII", fields: request("GET", "/", "x-a", "\xff\xa0"), want: `GET | / | path / | host example.com | header X-A=["\xff\xa0"]`},
		{name: "a name with other characters", fields: request("GET", "/", "x_y!z", "b"), want: `GET | / | path / | host example.com | header X_y!z=["b"]`},
		{name: "cookies", fields: request("GET", "/", "cookie", "a=b", "x", "y", "cookie", "c=d; e=f"), want: `GET | / | path / | host example.com | header Cookie=["a=b; c=d; e=f"] X=["y"]`},
		{name: "a length of nothing", fields: request("POST", "/", "content-length", "0"), want: `POST | / | path / | host example.com | header Content-Length=["0"]`},
		{name: "no body", fields: request("POST", "/"), body: []string{""}, want: "POST | / | path / | host example.com | length -1"},
		{name: "a body without a length", fields: request("POST", "/"), body: []string{"a", "", "bc"}, want: "POST | / | path / | host example.com | length -1 | body abc"},
		{name: "a body with a length", fields: request("POST", "/", "content-length", "3"), body: []string{"a", "bc"}, want: `POST | / | path / | host example.com | length 3 | header Content-Length=["3"] | body abc`},
		{name: "a GET with a body", fields: request("GET", "/"), body: []string{"abc"}, want: "GET | / | path / | host example.com | length -1 | body abc"},
		{name: "trailers that were announced", fields: request("POST", "/", "trailer", "x-sum, X-Other"), body: []string{"abc"}, after: []string{"x-sum", "1", "x-sum", "2", "x-more", "3"},
			want: `POST | / | path / | host example.com | length -1 | body abc | trailer X-Other=[] X-Sum=["1" "2"]`},
		{name: "trailers that were not announced", fields: request("POST", "/"), body: []string{"abc"}, after: []string{"x-sum", "1"}, want: "POST | / | path / | host example.com | length -1 | body abc"},
		{name: "trailers that must not be", fields: request("POST", "/", "trailer", "content-length, transfer-encoding, x"), body: []string{"abc"}, after: []string{"x", "1"},
			want: `POST | / | path / | host example.com | length -1 | body abc | trailer X=["1"]`, refused: "400"},
		{name: "trailers instead of a body", fields: request("POST", "/", "trailer", "x"), after: []string{"x", "1"}, want: `POST | / | path / | host example.com | length -1 | trailer X=["1"]`},
		{name: "TE", fields: request("GET", "/", "te", "trailers"), want: `GET | / | path / | host example.com | header Te=["trailers"]`},
		{name: "another expectation", fields: request("POST", "/", "expect", "x"), body: []string{"a"}, want: `POST | / | path / | host example.com | length -1 | header Expect=["x"] | body a`},
		{name: "the same length twice", fields: request("POST", "/", "content-length", "3", "content-length", "3"), body: []string{"abc"}, want: `POST | / | path / | host example.com | length 3 | header Content-Length=["3" "3"] | body abc`, refused: "PROTOCOL_ERROR"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := make(chan string, 1)
			onBothSides(t, options{}, func(_ http.ResponseWriter, r *http.Request) { got <- seen(r) }, func(t *testing.T, s *testServer, on string) {
				want := test.want
				if on == library && test.library != "" {
					want = test.library
				}
				p := s.greet(t)
				id := p.open(test.body == nil && test.after == nil, test.fields...)
				for i, b := range test.body {
					p.tell(p.WriteData(id, test.after == nil && i == len(test.body)-1, []byte(b)))
				}
				if test.after != nil {
					p.headers(id, true, test.after...)
				}
				a := p.await(id)
				if test.refused != "" && on == ours {
					if a.status() != test.refused && a.reset != test.refused || len(got) > 0 {
						t.Errorf("response = %+v, want %s without a call of the handler", a, test.refused)
					}
					return
				}
				if test.newer != "" && on == fallback {
					if want = test.newer; a.reset == want && len(got) == 0 {
						return
					}
				}
				select {
				case r := <-got:
					if r != want {
						t.Errorf("request in the handler = %s\nwant %s", r, want)
					}
				default:
					t.Fatalf("handler was not called: response = %+v, want %s", a, want)
				}
				if a.status() != "200" || !a.ended {
					t.Errorf("response = %+v, want status 200 and its end", a)
				}
			})
		})
	}
}

// A request whose method, path, query or host contains an invalid byte is answered with a Status, and the handler is not called. The
// same applies to values that only the other HTTP version cannot carry: a space in a path would break a request line of HTTP/1.1.
func TestInvalidBytesInRequestAreRejected(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/good" {
			t.Errorf("handler was called with %s %s, want no call", r.Method, r.RequestURI)
		}
	}
	s := sides[1].start(t, options{}, http.HandlerFunc(handler))
	of := func(method, authority, path string) []string {
		return []string{":method", method, ":scheme", "https", ":authority", authority, ":path", path}
	}
	p := s.greet(t)
	for _, test := range []struct {
		name   string
		fields []string
		says   string
	}{
		{"a request line in the path", of("GET", "a", "/x HTTP/1.1"), "0x20"},
		{"two requests in the path", of("GET", "a", "/x HTTP/1.1\r\nHost: a\r\n\r\nGET /y"), "0x20"},
		{"a line end in the path", of("GET", "a", "/x\r\n"), "0x0d"},
		{"NUL in the path", of("GET", "a", "/x\x00"), "0x00"},
		{"DEL in the path", of("GET", "a", "/x\x7f"), "0x7f"},
		{"bytes in the path beyond ASCII", of("GET", "a", "/\u00e4"), "0xc3"},
		{"a fragment", of("GET", "a", "/a#b"), "0x23"},
		{"a bad escape in the path", of("GET", "a", "/%zz"), "escape"},
		{"a blank in the query", of("GET", "a", "/x?a b"), "0x20"},
		{"bytes in the query beyond ASCII", of("GET", "a", "/x?\xa0HTTP/1.1"), "0xa0"},
		{"a bad escape in the query", of("GET", "a", "/x?%"), "escape"},
		{"an asterisk that is not for OPTIONS", of("GET", "a", "*"), "OPTIONS"},
		{"a request line in the method", of("GET /x HTTP/1.1\r\n", "a", "/"), "0x20"},
		{"a colon in the method", of("GET:", "a", "/"), "0x3a"},
		{"a blank in the host", of("GET", "a b", "/"), "0x20"},
		{"a line end in the host", of("GET", "a\r\nX: y", "/"), "0x0d"},
		{"a list of hosts", of("GET", "a,b", "/"), "0x2c"},
		{"a slash in the host", of("GET", "a/b", "/"), "0x2f"},
		{"a port that is none", of("GET", "a:b", "/"), "port"},
		{"a blank in Host alone", []string{":method", "GET", ":scheme", "https", ":path", "/", "host", "a b"}, "0x20"},
		{"a list in Host beside the authority", append(of("GET", "a", "/"), "host", "a,b"), "0x2c"},
		{"CONNECT without a port", []string{":method", "CONNECT", ":authority", "a"}, "port"},
		{"CONNECT to a path", []string{":method", "CONNECT", ":authority", "/a:1"}, "0x2f"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := p.await(p.open(true, test.fields...))
			var said struct{ Kind, Reason, Message string }
			if err := json.Unmarshal(a.body, &said); err != nil {
				t.Fatalf("body %q is not JSON: %v, want a Status", a.body, err)
			}
			if a.status() != "400" || said.Kind != "Status" || said.Reason != "BadRequest" || !strings.Contains(said.Message, test.says) {
				t.Errorf("response = %s %s, want 400 with a Status that contains %q", a.status(), a.body, test.says)
			}
		})
	}
	if a := p.await(p.get("/good")); a.status() != "200" {
		t.Errorf("request on the same connection = %+v, want status 200", a)
	}
}

// A client that waits for 100 (Continue) receives it when the handler reads the body, and only then.
func TestContinueIsSentWhenBodyIsRead(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Expect") != "" {
			t.Error("handler received the header Expect, want none")
		}
		if r.URL.Path == "/read" {
			body, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %v", body, err)
		}
	}
	onBothSides(t, options{}, handler, func(t *testing.T, s *testServer, _ string) {
		p := s.greet(t)
		id := p.open(false, request("POST", "/read", "expect", "100-continue")...)
		a := p.awaitUntil(id, func(a *answer) bool { return len(a.interim) > 0 })
		if !slices.Equal(a.interim, []string{"100"}) || a.header != nil {
			t.Fatalf("response before the body = %+v, want only status 100", a)
		}
		p.tell(p.WriteData(id, true, []byte("abc")))
		if a := p.await(id); string(a.body) != "abc <nil>" || len(a.interim) > 0 {
			t.Errorf("response after the body = %+v, want the body abc", a)
		}
		id = p.open(false, request("POST", "/leave", "expect", "100-continue")...)
		if a := p.await(id); a.status() != "200" || len(a.interim) > 0 {
			t.Errorf("response of a handler that does not read = %+v, want status 200 without 100", a)
		}
	})
}

// Bodies larger than the windows arrive completely from many simultaneous requests.
func TestConcurrentUploadsArriveCompletely(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%d %v", n, err)
	}
	onBothSides(t, options{window: 70_000}, handler, func(t *testing.T, s *testServer, _ string) {
		c := s.client(t)
		results := make(chan string)
		for i := range 8 {
			go func() {
				r, err := c.Post("https://"+s.address+"/", "text/plain", io.LimitReader(zeros{}, int64(1<<20+i)))
				if err != nil {
					results <- err.Error()
					return
				}
				defer r.Body.Close()
				b, err := io.ReadAll(r.Body)
				if want := fmt.Sprintf("%d <nil>", 1<<20+i); string(b) != want || err != nil {
					results <- fmt.Sprintf("%q, %v, want %s", b, err, want)
					return
				}
				results <- ""
			}()
		}
		for range 8 {
			if why := <-results; why != "" {
				t.Errorf("upload: %s, want success", why)
			}
		}
	})
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
