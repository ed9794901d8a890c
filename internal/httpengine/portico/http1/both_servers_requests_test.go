package http1

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// tell writes everything that a handler can read of a request.
func tell(w http.ResponseWriter, r *http.Request) {
	var s strings.Builder
	fmt.Fprintf(&s, "method %q uri %q proto %q %d %d host %q\n", r.Method, r.RequestURI, r.Proto, r.ProtoMajor, r.ProtoMinor, r.Host)
	fmt.Fprintf(&s, "url %q user %v query %q escaped %q\n", parts(r.URL), r.URL.User, r.URL.Query(), r.URL.EscapedPath())
	fmt.Fprintf(&s, "length %d coding %q close %v remote %v tls %v pattern %q\n", r.ContentLength, r.TransferEncoding, r.Close, r.RemoteAddr != "", r.TLS != nil, r.Pattern)
	fields(&s, "header", r.Header)
	fields(&s, "announced", r.Trailer)
	_, local := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	_, server := r.Context().Value(http.ServerContextKey).(*http.Server)
	fmt.Fprintf(&s, "local %v server %v\n", local, server)
	fmt.Fprintf(&s, "none %v form %v response %v cancel %v\n", r.Body == http.NoBody, r.Form != nil, r.Response != nil, r.GetBody != nil)
	body, err := io.ReadAll(r.Body)
	fmt.Fprintf(&s, "body %q %v\n", body, err != nil)
	n, err := r.Body.Read(make([]byte, 10))
	fmt.Fprintf(&s, "again %d %v closing %v\n", n, errors.Is(err, io.EOF), r.Body.Close())
	fields(&s, "trailer", r.Trailer)
	w.Header().Set("Content-Length", strconv.Itoa(s.Len())) // Both servers buffer a little, but different amounts.
	_, _ = io.WriteString(w, s.String())
}

func parts(u *url.URL) []any {
	return []any{u.Scheme, u.Opaque, u.Host, u.Path, u.RawPath, u.RawQuery, u.Fragment, u.RawFragment, u.ForceQuery, u.OmitHost}
}

func fields(w io.Writer, what string, h http.Header) {
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Fprintf(w, "%s %v\n", what, h != nil)
	for _, name := range names {
		fmt.Fprintf(w, "  %q: %q\n", name, h[name])
	}
}

const probe = "GET /probe HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n"

// probed answers the probe after the requests under test.
func probed(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/probe" || r.Host != "probe" {
			h(w, r)
		}
	}
}

// readAnswers splits received bytes into a description of each response and the remaining bytes.
func readAnswers(t testing.TB, came string, methods ...string) (all []string) {
	t.Helper()
	b := bufio.NewReader(strings.NewReader(came))
	for i := 0; ; i++ {
		if _, err := b.Peek(1); err != nil {
			return all
		}
		method := "GET"
		if i < len(methods) {
			method = methods[i]
		}
		res, err := http.ReadResponse(b, &http.Request{Method: method})
		if err != nil {
			return append(all, fmt.Sprintf("no answer: %v", err))
		}
		if res.StatusCode < 200 && res.StatusCode != 101 {
			i--
		}
		all = append(all, answerInWords(res))
	}
}

func answerInWords(res *http.Response) string {
	var s strings.Builder
	body, err := io.ReadAll(res.Body)
	if err != nil {
		body = nil // The received length varies.
	}
	dated := res.Header.Get("Date") != ""
	if dated && res.Header.Get("Date") != "mine" {
		res.Header.Set("Date", "some")
	}
	fmt.Fprintf(&s, "%s %s length %d coding %q close %v body err %v\n", res.Proto, res.Status, res.ContentLength, res.TransferEncoding, res.Close, err)
	fields(&s, "header", res.Header)
	fields(&s, "trailer", res.Trailer)
	fmt.Fprintf(&s, "%s", body)
	return s.String()
}

var fifty = strings.Repeat("GET /a HTTP/1.1\r\nHost: x\r\n\r\n", 50)

// Valid requests. Handlers must receive equal requests, and the connection must stay open or end in the same way.
var fine = []struct{ name, raw string }{
	{"a GET", "GET /a HTTP/1.1\r\nHost: example.com\r\n\r\n"},
	{"HEAD", "HEAD /a HTTP/1.1\r\nHost: example.com\r\n\r\n"},
	{"a method of one's own", "M-SEARCH!#$%&'*+-.^_`|~ /a HTTP/1.1\r\nHost: example.com\r\n\r\n"},
	{"a small method", "get /a HTTP/1.1\r\nHost: example.com\r\n\r\n"},
	{"DELETE with a body", "DELETE /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"},
	{"GET with a body", "GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"},
	{"OPTIONS of the server", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"},
	{"TRACE", "TRACE /a HTTP/1.1\r\nHost: x\r\n\r\n"},
	{"an absolute target", "GET https://other.example:8443/a?b=c HTTP/1.1\r\nHost: example.com\r\n\r\n"},
	{"an absolute target without a path", "GET https://other.example HTTP/1.1\r\nHost: example.com\r\n\r\n"},
	{"escapes", "GET /a%2Fb%20c/%e2%82%ac/d?x=%7a&y=+%26&&;z HTTP/1.1\r\nHost: x\r\n\r\n"},
	{"a question mark alone", "GET /a? HTTP/1.1\r\nHost: x\r\n\r\n"},
	{"two slashes", "GET //a//b/../c HTTP/1.1\r\nHost: x\r\n\r\n"},
	{"bytes that are no ASCII in a value", "GET / HTTP/1.1\r\nHost: x\r\nX: \xc3\xa4\xff\r\n\r\n"},
	{"bytes that need an escape by the letter, and are sent without", "GET /a{b}|c^[d]`?e={\"f\"}|<g>\\[h] HTTP/1.1\r\nHost: x\r\n\r\n"},
	{"a bracket of IPv6", "GET / HTTP/1.1\r\nHost: [::1]:6443\r\n\r\n"},
	{"an empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n"},
	{"names in every spelling", "GET / HTTP/1.1\r\nhOST: x\r\nx-REMOTE-user: a\r\nx_under: b\r\nETAG: c\r\nwww-authenticate: d\r\n!#$%&'*+-.^_`|~09: e\r\n\r\n"},
	{"values with blanks about them", "GET / HTTP/1.1\r\nHost:  \tx\t \r\nA:b\r\nB:\t c  d \t\r\nC:\r\nD: \r\n\r\n"},
	{"many values", "GET / HTTP/1.1\r\nHost: x\r\nA: 1\r\nB: 2\r\na: 3\r\nA: 4, 5\r\nb:\r\nCookie: a=b\r\nCookie: c=d\r\n\r\n"},
	{"two hundred headers", "GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A: 1\r\nB-b: 2\r\n", 100) + "\r\n"},
	{"a head of 20 KB", "GET / HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("x", 20_000) + "\r\n\r\n"},
	{"a target of 20 KB", "GET /" + strings.Repeat("x", 20_000) + " HTTP/1.1\r\nHost: x\r\n\r\n"},
	{"an empty line after a POST", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na\r\n"},
	{"the client closes", "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"},
	{"the client closes, among other things", "GET / HTTP/1.1\r\nHost: x\r\nConnection: a, CLOSE ,b\r\n\r\n"},
	{"the client closes, in a second line", "GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n"},
	{"keep-alive said", "GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\nKeep-Alive: 5\r\n\r\n"},
	{"HTTP/1.0", "GET /a HTTP/1.0\r\n\r\n"},
	{"HTTP/1.0 with a Host", "GET /a HTTP/1.0\r\nHost: x\r\n\r\n"},
	{"HTTP/1.0 with keep-alive", "GET /a HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"},
	{"HTTP/1.0 with a body", "POST /a HTTP/1.0\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\nabc"},
	{"HTTP/1.0 expects", "POST /a HTTP/1.0\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc"},
	{"fifty at once", fifty},
	{"a body", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"},
	{"a body with leading zeros in its length", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0005\r\n\r\nhello"},
	{"a body of no length", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"},
	{"no body", "POST / HTTP/1.1\r\nHost: x\r\n\r\n"},
	{"a body of 100 KB", "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100_000)},
	{"chunks", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n \r\n0000A\r\n0123456789\r\n0\r\n\r\n"},
	{"chunks spelled otherwise", "POST / HTTP/1.1\r\nHost: x\r\ntransfer-encoding:  CHUNKED \r\n\r\na\r\n0123456789\r\nB\r\n0123456789a\r\n00\r\n\r\n"},
	{"no chunk at all", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{"extensions", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b;c=\"d e\"\r\nhello\r\n0;last\r\n\r\n"},
	{"trailers", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: a, B\r\n\r\n1\r\nx\r\n0\r\nA: 1\r\nb: 2\r\n\r\n"},
	{"announced trailers that do not come", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n1\r\nx\r\n0\r\n\r\n"},
	{"trailers twice", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\nTrailer: a,,B\r\n\r\n0\r\nA: 1\r\nA: 2\r\n\r\n"},
	{"a Trailer without chunks", "POST / HTTP/1.1\r\nHost: x\r\nTrailer: A\r\nContent-Length: 1\r\n\r\nx"},
	{"a chunk of 100 KB", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n186a0\r\n" + strings.Repeat("x", 100_000) + "\r\n0\r\n\r\n"},
	{"a thousand chunks", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("3\r\nabc\r\n", 1000) + "0\r\n\r\n"},
	{"expects", "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-Continue\r\nContent-Length: 3\r\n\r\nabc"},
	{"expects, and has nothing to send", "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n"},
	{"expects chunks", "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
	{"expects, empty", "POST / HTTP/1.1\r\nHost: x\r\nExpect:\r\nContent-Length: 3\r\n\r\nabc"},
	{"Pragma", "GET / HTTP/1.1\r\nHost: x\r\nPragma: no-cache\r\n\r\n"},
	{"Pragma and Cache-Control", "GET / HTTP/1.1\r\nHost: x\r\nPragma: no-cache\r\nCache-Control: max-age=1\r\n\r\n"},
	{"Pragma of another kind", "GET / HTTP/1.1\r\nHost: x\r\nPragma: No-Cache\r\n\r\n"},
	{"an Upgrade that nobody takes", "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"},
	{"two kinds", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nHost: x\r\n\r\nPOST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"},
}

func TestBothServersValidRequests(t *testing.T) {
	both := map[string]*serverUnderTest{}
	for _, p := range implementations {
		both[p.name] = p.open(t, rules{tls: true}, probed(tell))
	}
	for _, c := range fine {
		t.Run(c.name, func(t *testing.T) {
			method, _, _ := strings.Cut(c.raw, " ")
			want := readAnswers(t, hear(t, both[library].dial(t), c.raw+probe), method)
			got := readAnswers(t, hear(t, both[ours].dial(t), c.raw+probe), method)
			compare(t, got, want)
		})
	}
}

func compare(t *testing.T, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	for i := range max(len(got), len(want)) {
		g, w := "nothing", "nothing"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("response %d of %d (want %d) =\n%s\nwant\n%s", i+1, len(got), len(want), brief(g), brief(w))
			return
		}
	}
}

func brief(s string) string {
	if len(s) > 1500 {
		return s[:750] + " ... " + s[len(s)-750:]
	}
	return s
}

// The split of the bytes into reads does not affect the result.
func TestBothServersIgnoreReadBoundaries(t *testing.T) {
	const raw = "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: T\r\nA: b\r\n\r\n3;e\r\nabc\r\n0\r\nT: v\r\n\r\n" +
		"\r\nPUT /b HTTP/1.1\r\nHost: y\r\nContent-Length: 4\r\n\r\nabcd" + probe
	onBoth(t, rules{}, probed(tell), func(t *testing.T, a *serverUnderTest) {
		want := readAnswers(t, hear(t, a.dial(t), raw))
		if len(want) != 3 {
			t.Fatalf("responses = %q, want 3", want)
		}
		bytes := strings.Split(raw, "")
		compare(t, readAnswers(t, hear(t, a.pipe(t), bytes...)), want)
		for i := 1; i < len(raw)-len(probe); i++ {
			compare(t, readAnswers(t, hear(t, a.pipe(t), raw[:i], raw[i:])), want)
			if t.Failed() {
				t.Fatalf("responses differ with a split at %d after %q, want equal responses", i, raw[:i])
			}
		}
	})
}

// A client that waits for 100 (Continue) receives it when the handler reads the body, and only then.
func TestBothServersSendContinueWhenBodyIsRead(t *testing.T) {
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		first   string // the first status that arrives
	}{
		{"the body is read", func(w http.ResponseWriter, r *http.Request) { tell(w, r) }, "100"},
		{"the body is not wanted", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(413) }, "413"},
		{"the answer begins before the body is read", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(202)
			_ = http.NewResponseController(w).Flush()
		}, "202"},
		{"the handler says 100 itself", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(100); tell(w, r) }, "100"},
		{"the handler says 103 first", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(103); tell(w, r) }, "103"},
	} {
		t.Run(c.name, func(t *testing.T) {
			results := map[string][]string{}
			for _, p := range implementations {
				a := p.open(t, rules{}, probed(c.handler))
				conn := a.dial(t)
				if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				b := make([]byte, len("HTTP/1.1 100"))
				if _, err := io.ReadFull(conn, b); err != nil {
					t.Fatalf("%s: read of the first status failed: %v, want no error", p.name, err)
				}
				if string(b[9:]) != c.first {
					t.Errorf("%s: first status = %q, want %s", p.name, b, c.first)
				}
				results[p.name] = readAnswers(t, string(b)+hear(t, conn, "abc"+probe))
			}
			compare(t, results[ours], results[library])
		})
	}
}
