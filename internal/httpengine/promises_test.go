package httpengine_test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"portico.dev/internal/httpengine"
	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/httpengine/enginetest"
)

// net/http's behavior equals its description in internal/httpengine/README.md. A row must be removed when net/http improves.
func TestDocumentedNetHTTPLimitationsApply(t *testing.T) {
	const host = "Host: a\r\n"
	// raw returns a function that sends text over HTTP/1.1 and returns the statuses. A later request is shown as "probe".
	raw := func(text string) func(*testing.T, *serving) string {
		return func(t *testing.T, s *serving) string {
			c := s.dial(t, "http/1.1")
			_, _ = io.WriteString(c, text+"GET /probe HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
			in := bufio.NewReader(c)
			var all []string
			for {
				res, err := http.ReadResponse(in, nil)
				if err != nil {
					return strings.Join(all, " ")
				}
				body, _ := io.ReadAll(res.Body)
				all = append(all, strings.TrimSpace(fmt.Sprint(res.StatusCode, " ", string(body))))
			}
		}
	}
	const badRequest = "400 a Status"
	post := "POST / HTTP/1.1\r\n" + host
	tried := map[enginetest.Promise]bool{}
	for _, test := range []struct {
		name    string
		promise enginetest.Promise
		config  engine.ServerConfig
		do      func(*testing.T, *serving) string
		portico string
		library string
	}{
		{name: "a bare LF", promise: enginetest.LineEnds, do: raw("GET / HTTP/1.1\r\nHost: a\nA: b\r\n\r\n"), portico: badRequest, library: "200 / 200 /probe"},
		{name: "a folded line", promise: enginetest.LineEnds, do: raw("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n"), portico: badRequest, library: "200 / 200 /probe"},
		{name: "a folded trailer", promise: enginetest.LineEnds, do: raw(post + "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n c\r\n\r\n"),
			portico: "500 the body is bad", library: "200 / 200 /probe"},
		{name: "a length and a coding", promise: enginetest.OneLength, do: raw(post + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), portico: badRequest, library: "200 / 200 /probe"},
		{name: "equal lengths", promise: enginetest.OneLength, do: raw(post + "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx"), portico: badRequest, library: "200 / 200 /probe"},
		{name: "a coding of HTTP/1.0", promise: enginetest.OneLength, do: raw("POST / HTTP/1.0\r\n" + host + "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
			portico: badRequest, library: "200 / " + badRequest},
		{name: "a blank after a size", promise: enginetest.PlainChunks, do: raw(post + "Transfer-Encoding: chunked\r\n\r\n1 \r\nx\r\n0\r\n\r\n"), portico: "500 the body is bad", library: "200 / 200 /probe"},
		{name: "NUL in an extension", promise: enginetest.PlainChunks, do: raw(post + "Transfer-Encoding: chunked\r\n\r\n1;\x00\r\nx\r\n0\r\n\r\n"), portico: "500 the body is bad", library: "200 / 200 /probe"},
		{name: "CONNECT without a Host", promise: enginetest.HostOfEveryRequest, do: raw("CONNECT a:443 HTTP/1.1\r\n\r\n"), portico: badRequest, library: "200 200 /probe"},
		{name: "a Host that is none beside a target that has one", promise: enginetest.HostOfEveryRequest, do: raw("GET https://a/ HTTP/1.1\r\nHost: a,b\r\n\r\n"), portico: badRequest, library: "200 / 200 /probe"},
		{name: "a header that is too large", promise: enginetest.StatusForEveryRefusal, config: engine.ServerConfig{MaxHeaderBytes: 4 << 10}, do: func(t *testing.T, s *serving) string {
			p := greet(t, s)
			p.head(1, true, "large", strings.Repeat("x", 4000), "larger", strings.Repeat("y", 1000))
			return p.contentType(1)
		}, portico: "application/json", library: "text/html; charset=utf-8"},
		{name: "an empty line", promise: enginetest.EmptyLineBefore, do: raw("\r\nGET / HTTP/1.1\r\n" + host + "\r\n"), portico: "200 / 200 /probe", library: badRequest},
		{name: "a body that is shorter than its length", promise: enginetest.LengthOverHTTP2, do: func(t *testing.T, s *serving) string {
			p := greet(t, s)
			p.head(1, false, ":method", "POST", "content-length", "4")
			p.tell(p.WriteData(1, true, []byte("abc")))
			return p.status(1)
		}, portico: "reset", library: "500"},
		{name: "a length that is none", promise: enginetest.LengthOverHTTP2, do: func(t *testing.T, s *serving) string {
			p := greet(t, s)
			p.head(1, false, ":method", "POST", "content-length", "x")
			return p.status(1)
		}, portico: "reset", library: "400"},
		{name: "PRIORITY without end", promise: enginetest.FloodsOfFrames, do: func(t *testing.T, s *serving) string {
			p := greet(t, s)
			go func() {
				for range 100_000 {
					if p.WriteRawFrame(http2.FramePriority, 0, 1, []byte("\x00\x00\x00\x00\x10")) != nil {
						return
					}
				}
				p.request(3, true)
			}()
			return p.status(3)
		}, portico: "closed", library: "200"},
		{name: "large headers without end", promise: enginetest.FloodsOfHeaders, config: engine.ServerConfig{MaxHeaderBytes: 4 << 10}, do: func(t *testing.T, s *serving) string {
			p := greet(t, s)
			for id := uint32(1); id < 100; id += 2 {
				p.head(id, true, "large", strings.Repeat("x", 4000), "larger", strings.Repeat("y", 1000))
				if got := p.status(id); got != "431" {
					return got
				}
			}
			return "431"
		}, portico: "closed", library: "431"},
		{name: "a header block that is not whole", promise: enginetest.HeaderTimeOverHTTP2, config: engine.ServerConfig{HeaderTimeout: 300 * time.Millisecond, PingAfter: time.Second, PingTimeout: time.Second}, do: func(t *testing.T, s *serving) string {
			p := greet(t, s)
			p.tell(p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}}))
			for {
				f, err := p.ReadFrame()
				if err != nil {
					return "closed"
				}
				if _, ok := f.(*http2.PingFrame); ok {
					receive(t, s.ended, "the connection ends")
					return "closed after a ping"
				}
			}
		}, portico: "closed", library: "closed after a ping"},
		{name: "a GOAWAY before the last", promise: enginetest.TwoGoAways, do: func(t *testing.T, s *serving) string {
			p := greet(t, s)
			p.get(1, "/wait")
			go func() { _ = s.GoAway(t.Context()) }()
			if last := p.untilGoAway(http2.ErrCodeNo); last == 1<<31-1 {
				return "warned"
			}
			return "told"
		}, portico: "warned", library: "told"},
		{name: "crumbs of a cookie", promise: enginetest.CookieCrumbs, do: func(t *testing.T, s *serving) string {
			p := greet(t, s)
			p.head(1, true, append([]string{":method", "GET"}, slices.Repeat([]string{"cookie", "a=b"}, 501)...)...)
			return p.status(1)
		}, portico: "431", library: "200"},
		{name: "a body that its handler does not read", promise: enginetest.ShortOfMemory, do: func(t *testing.T, s *serving) string {
			p := greet(t, s)
			p.head(1, false, ":method", "POST", ":path", "/wait")
			for range 4 {
				p.tell(p.WriteData(1, false, make([]byte, 15_000)))
			}
			p.tell(p.WritePing(false, [8]byte{1}))
			for acknowledged := false; !acknowledged; { // so that the body has arrived
				f, err := p.ReadFrame()
				if err != nil {
					t.Fatal(err)
				}
				ping, ok := f.(*http2.PingFrame)
				acknowledged = ok && ping.IsAck()
			}
			return fmt.Sprintf("%d cut", s.CutLargest(1<<30))
		}, portico: "1 cut", library: "0 cut"},
	} {
		tried[test.promise] = true
		t.Run(test.name, func(t *testing.T) {
			inTime(t, func(t *testing.T, n httpengine.Name) {
				s := serveInMemory(t, n, test.config, func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/wait" {
						<-r.Context().Done()
						return
					}
					if _, err := io.Copy(io.Discard, r.Body); err != nil {
						http.Error(w, "the body is bad", http.StatusInternalServerError)
						return
					}
					_, _ = io.WriteString(w, r.URL.Path)
				})
				got := test.do(t, s)
				if before, _, found := strings.Cut(got, `400 {"kind":"Status"`); found {
					got = before + badRequest
				}
				want := test.portico
				if s.name == httpengine.Library {
					want = test.library
				}
				if got != want {
					t.Errorf("result = %q, want %q", got, want)
				}
			})
		})
	}
	for _, p := range enginetest.Promises() {
		if !tried[p] {
			t.Errorf("no case for %q, want one", p)
		}
	}
}

var update = flag.Bool("update", false, "write the table of internal/httpengine/README.md")

// The table is generated from the list by which tests are skipped.
func TestNetHTTPLimitationTableIsCurrent(t *testing.T) {
	const page, begin, end = "README.md", "<!-- begin promises -->\n", "<!-- end promises -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	got, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no table between %q and %q, want one", page, begin, end)
	}
	var table strings.Builder
	table.WriteString("| Portico's own server | attack | the library instead | where |\n|---|---|---|---|\n")
	for _, p := range enginetest.Promises() {
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", p.Name, p.Attack, p.Instead, p.Source)
	}
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+table.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != table.String() {
		t.Errorf("table of %s differs from the list of package enginetest, want equal text; run: go test ./internal/httpengine -run TestNetHTTPLimitationTableIsCurrent -args -update", page)
	}
}

// Both engines refuse every request that the rule table refuses, with the same status and without a call of the handler.
func TestBothEnginesEnforceRuleTable(t *testing.T) {
	const head = " HTTP/1.1\r\nHost: a\r\n"
	overHTTP1 := map[string]string{
		"400 a quotation mark in the path":        "GET /a\"b" + head,
		"400 a fragment":                          "GET /a#b" + head,
		"400 bytes of a path that are no ASCII":   "GET /\xc3\xa4" + head,
		"400 a query with a bad escape":           "GET /?a=%zz" + head,
		"400 a user in the target":                "GET https://me:pw@a/a" + head,
		"400 another scheme":                      "GET urn:x:y" + head,
		"400 an asterisk that is not for OPTIONS": "GET *" + head,
		"400 CONNECT to a path":                   "CONNECT /rpc" + head,
		"400 CONNECT without a port":              "CONNECT a" + head,
		"400 a list of hosts":                     "GET / HTTP/1.1\r\nHost: a,b\r\n",
		"400 an escape in the host":               "GET / HTTP/1.1\r\nHost: a%62\r\n",
		"400 two ports":                           "GET / HTTP/1.1\r\nHost: a:1:2\r\n",
		"400 a host that is a port":               "GET / HTTP/1.1\r\nHost: :1\r\n",
		"505 HTTP/1.2":                            "GET / HTTP/1.2\r\nHost: a\r\n",
		"505 the preface of HTTP/2":               "PRI * HTTP/2.0\r\n",
		"200 what is fine":                        "GET /a%2Fb?c=[d]&e=\"f\"" + head,
	}
	overHTTP2 := map[string][]string{
		"400 a blank in the path":          {":path", "/a HTTP/1.1"},
		"400 a control byte in the path":   {":path", "/\x01"},
		"400 a fragment":                   {":path", "/a#b"},
		"400 a query with a bad escape":    {":path", "/?a=%zz"},
		"400 a list of hosts":              {":authority", "a,b"},
		"400 an escape in the host":        {":authority", "a%62"},
		"400 an asterisk for GET":          {":path", "*"},
		"400 Transfer-Encoding":            {"transfer-encoding", "chunked"},
		"400 Connection":                   {"connection", "close"},
		"200 blanks at the ends of values": {"a", " \tb\t"},
		"200 another scheme":               {":scheme", "http"},
	}
	onBothServers(t, engine.ServerConfig{}, func(_ http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || strings.TrimSpace(r.Header.Get("A")) != r.Header.Get("A") || !strings.HasPrefix(r.URL.Path, "/") {
			t.Errorf("request in the handler = %s %s, TLS %v, A %q, want TLS, a trimmed header and an absolute path", r.Method, r.URL, r.TLS, r.Header.Get("A"))
		}
	}, func(t *testing.T, s *serving) {
		for name, text := range overHTTP1 {
			c := s.dial(t, "http/1.1")
			_, _ = io.WriteString(c, text+"\r\n")
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Errorf("HTTP/1.1, %s: read of the response failed: %v, want no error", name, err)
				continue
			}
			body, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
			res.Body.Close()
			if want := name[:3]; res.Status[:3] != want || want != "200" && !strings.HasPrefix(string(body), `{"kind":"Status"`) {
				t.Errorf("HTTP/1.1, %s: response = %s %s, want %s", name, res.Status, body, want)
			}
			_ = c.NetConn().Close()
		}
		for name, fields := range overHTTP2 {
			p := greet(t, s)
			p.head(1, true, fields...)
			if got, want := p.status(1), name[:3]; got != want && !(want == "400" && got == "reset") {
				t.Errorf("HTTP/2, %s: response = %s, want the status in the name", name, got)
			}
			_ = p.conn.NetConn().Close()
		}
	})
}
