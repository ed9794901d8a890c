package http2_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// Cases of the tests of Go's HTTP libraries that no other Portico test covered (internal/httpengine/upstream-tests.md).

// A handler may suppress the length that the server would send: TestServerContentLengthCanBeDisabled of golang.org/x/net/http2.
func TestHandlerCanSuppressContentLength(t *testing.T) {
	handler := func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Length"] = nil
		_, _ = io.WriteString(w, "OK")
	}
	onBothSides(t, options{}, handler, func(t *testing.T, s *testServer, _ string) {
		p := s.greet(t)
		want := `200 | content-type=text/plain; charset=utf-8 date=now | "OK"`
		if got := p.await(p.open(true, request("GET", "/")...)).told(); got != want {
			t.Errorf("response = %s\nwant %s", got, want)
		}
	})
}

// A handler may reuse its buffer when Write returns: TestServerWriteDoesNotRetainBufferAfterReturn.
func TestHandlerMayReuseWriteBuffer(t *testing.T) {
	const writes, size = 20, 9000
	handler := func(w http.ResponseWriter, _ *http.Request) {
		p := make([]byte, size)
		for i := range writes {
			for j := range p {
				p[j] = 'a' + byte(i)
			}
			_, _ = w.Write(p)
			clear(p)
		}
	}
	onBothSides(t, options{}, handler, func(t *testing.T, s *testServer, _ string) {
		p := s.greet(t)
		var want strings.Builder
		for i := range writes {
			want.WriteString(strings.Repeat(string(rune('a'+i)), size))
		}
		if got := p.await(p.open(true, request("GET", "/")...)); string(got.body) != want.String() {
			t.Errorf("body of %d bytes differs from the bytes written, want %d bytes in order", len(got.body), writes*size)
		}
	})
}

// A block with an error in its first frame is read to its end, because it changes the table: TestServerContinuationAfterInvalidHeader.
func TestInvalidHeaderBlockIsReadToItsEnd(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Header.Get("X-Late")) }
	onBothInTime(t, options{}, handler, func(t *testing.T, s *testServer, side string) {
		p := s.greet(t)
		id := p.id()
		first := append(p.encode(":method", "GET", ":scheme", "https", ":path", "/"), 0, 3, 'B', 'A', 'D', 0) // a name in capitals
		p.tell(p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndStream: true}))
		p.tell(p.WriteContinuation(id, true, p.encode("x-late", "in the table")))
		if got := p.await(id).told(); !strings.Contains(got, "RST PROTOCOL_ERROR") && side == ours {
			t.Errorf("stream with the invalid block = %s, want RST PROTOCOL_ERROR", got)
		}
		if side != ours { // net/http's server ends the connection.
			return
		}
		if got := p.await(p.open(true, append(request("GET", "/"), "x-late", "in the table")...)); string(got.body) != "in the table" {
			t.Errorf("next request = %s, want the body \"in the table\"", got.told())
		}
	})
}

// Cookies are sent as crumbs, and hosts in Punycode: TestTransportCookieHeaderSplit and TestAPITransportIDNA.
func TestCookiesAndHostsAreEncoded(t *testing.T) {
	for _, c := range callers {
		t.Run(c.name, func(t *testing.T) {
			address, _ := listenByHand(t, func(b *backend) {
				b.settle()
				for {
					f, err := b.listen()
					if err != nil {
						return
					}
					h, ok := f.(*http2.MetaHeadersFrame)
					if !ok {
						continue
					}
					var cookies []string
					for _, field := range h.Fields {
						if field.Name == "cookie" {
							cookies = append(cookies, field.Value)
						}
					}
					b.answer(h.StreamID, true, "x-seen", h.PseudoValue("authority")+" "+strings.Join(cookies, "|"))
				}
			})
			rt := c.dial(t, address)
			r := newRequest(t, "GET", nil)
			r.Host = "гофер.example:8443"
			r.Header["Cookie"] = []string{"a=b;c=d; e=f;", "g=h"}
			res, err := rt.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if got, want := res.Header.Get("X-Seen"), "xn--c1ae0ajs.example:8443 a=b|c=d|e=f|g=h"; got != want {
				t.Errorf("request at the server = %q, want %q", got, want)
			}
		})
	}
}

// Connection-specific fields have no meaning in HTTP/2. They could have one if the response is forwarded over HTTP/1.1:
// TestTransportResponseConnHeaders.
func TestConnectionFieldsOfResponsesAreRemoved(t *testing.T) {
	for name, fields := range map[string][]string{
		"transfer-encoding":                    {"transfer-encoding", "chunked"},
		"connection and keep-alive":            {"connection", "keep-alive, x", "keep-alive", "timeout=5"},
		"proxy-connection":                     {"proxy-connection", "keep-alive"},
		"upgrade":                              {"upgrade", "websocket"},
		"transfer-encoding beside others":      {"x", "y", "transfer-encoding", "chunked", "content-length", "0"},
		"transfer-encoding that is no chunked": {"transfer-encoding", "identity"},
	} {
		for _, c := range callers {
			t.Run(c.name+", "+name, func(t *testing.T) {
				address, _ := listenByHand(t, func(b *backend) {
					b.settle()
					b.answer(b.request(true), true, fields...)
				})
				res, err := c.dial(t, address).RoundTrip(newRequest(t, "GET", nil))
				if err != nil {
					t.Fatal(err)
				}
				_ = res.Body.Close()
				for _, name := range []string{"Transfer-Encoding", "Connection", "Keep-Alive", "Proxy-Connection", "Upgrade"} {
					if values, ok := res.Header[name]; ok && c.name == ours { // Newer versions of net/http drop them too.
						t.Errorf("response field %s = %q, want it dropped", name, values)
					}
				}
			})
		}
	}
}
