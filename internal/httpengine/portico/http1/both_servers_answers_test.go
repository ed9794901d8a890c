package http1

import (
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

func say(w http.ResponseWriter, s string) { _, _ = io.WriteString(w, s) }

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

var (
	three   = strings.Repeat("abc\n", 750)
	hundred = strings.Repeat("0123456789", 10_000)
)

// answered contains handlers. Both servers must send the same responses for them.
var answered = []struct {
	name    string
	handler func(http.ResponseWriter, *http.Request)
}{
	{"nothing", func(http.ResponseWriter, *http.Request) {}},
	{"an empty write", func(w http.ResponseWriter, _ *http.Request) { say(w, "") }},
	{"a few bytes", func(w http.ResponseWriter, _ *http.Request) { say(w, "hello") }},
	{"a few bytes, thrice", func(w http.ResponseWriter, _ *http.Request) { say(w, "he"); say(w, "l"); say(w, "lo") }},
	{"2 KB", func(w http.ResponseWriter, _ *http.Request) { say(w, three[:2000]) }},
	{"3 KB of known length", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "3000"); say(w, three) }},
	{"100 KB", func(w http.ResponseWriter, _ *http.Request) { say(w, hundred) }},
	{"100 KB as bytes", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(hundred)) }},
	{"100 KB of known length", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100000")
		say(w, hundred)
	}},
	{"100 KB in little", func(w http.ResponseWriter, _ *http.Request) {
		for i := range 10_000 {
			say(w, hundred[10*i:10*i+10])
		}
	}},
	{"100 KB by copying", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, strings.NewReader(hundred)) }},
	{"a flush first", func(w http.ResponseWriter, _ *http.Request) { flush(w); say(w, "hello") }},
	{"a flush between", func(w http.ResponseWriter, _ *http.Request) { say(w, "hel"); flush(w); say(w, "lo") }},
	{"a flush at the end", func(w http.ResponseWriter, _ *http.Request) { say(w, "hello"); flush(w) }},
	{"a flush alone", func(w http.ResponseWriter, _ *http.Request) { flush(w); flush(w) }},
	{"a header after the flush", func(w http.ResponseWriter, _ *http.Request) { flush(w); w.Header().Set("A", "b"); say(w, "x") }},
	{"a header after the first write", func(w http.ResponseWriter, _ *http.Request) { say(w, "x"); w.Header().Set("A", "b") }},
	{"a header taken away after the status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("A", "b")
		w.WriteHeader(201)
		w.Header().Del("A")
	}},
	{"a length that is too large", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "500"); say(w, "hello") }},
	{"a length that is too large, and nothing", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "500") }},
	{"a length that is too small", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "3")
		n, err := io.WriteString(w, "hello")
		flush(w)
		w.Header().Set(http.TrailerPrefix+"Said", strconv.Itoa(n)+strconv.FormatBool(err == http.ErrContentLength))
	}},
	{"a length that is none", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "five")
		say(w, "hello")
	}},
	{"a length less than nothing", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "-5"); say(w, "hello") }},
	{"a length and a coding", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5")
		w.Header().Set("Transfer-Encoding", "chunked")
		say(w, "hello")
	}},
	{"a length of nothing", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "0") }},
	{"201 with a Location", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Location", "/x"); w.WriteHeader(201) }},
	{"204", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }},
	{"204 with a body", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204); say(w, "hello") }},
	{"204 with a length", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(204)
	}},
	{"204 flushed", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204); flush(w) }},
	{"205", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(205) }},
	{"304", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Etag", `"x"`); w.WriteHeader(304) }},
	{"304 with a type and a length", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "a/b")
		w.Header().Set("Content-Length", "5")
		w.WriteHeader(304)
	}},
	{"404", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404); say(w, "no") }},
	{"599", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(599); say(w, "x") }},
	{"999", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(999); say(w, "x") }},
	{"two statuses", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); w.WriteHeader(500); say(w, "x") }},
	{"a status after writing", func(w http.ResponseWriter, _ *http.Request) { say(w, "x"); w.WriteHeader(500) }},
	{"a status that is none", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(99) }},
	{"a status of four digits", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(1000) }},
	{"103 before", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</x>")
		w.Header().Set("Content-Length", "2")
		w.WriteHeader(103)
		w.WriteHeader(103)
		w.Header().Del("Link")
		say(w, "ok")
	}},
	{"100 before", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(100); say(w, "ok") }},
	{"199 and nothing", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(199) }},
	{"101", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "x")
		w.WriteHeader(101)
	}},
	{"a Date of one's own", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Date", "mine"); say(w, "x") }},
	{"no Date", func(w http.ResponseWriter, _ *http.Request) { w.Header()["Date"] = nil; say(w, "x") }},
	{"a type of one's own", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "a/b"); say(w, "x") }},
	{"no type", func(w http.ResponseWriter, _ *http.Request) { w.Header()["Content-Type"] = nil; say(w, "x") }},
	{"a type to be guessed", func(w http.ResponseWriter, _ *http.Request) { say(w, "<html>x") }},
	{"a type to be guessed of 100 KB", func(w http.ResponseWriter, _ *http.Request) { say(w, "\x89PNG\r\n\x1a\n"+hundred) }},
	{"an encoding", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Encoding", "gzip"); say(w, "x") }},
	{"an empty encoding", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Encoding", ""); say(w, "x") }},
	{"line ends in a value", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("A", "b\r\nInjected: c\rd\ne")
		w.Header()["B"] = []string{" x ", "\ty", ""}
		say(w, "x")
	}},
	{"line ends in a name", func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["A\r\nInjected"] = []string{"b"}
		w.Header()["C D"] = []string{"b"}
		w.Header()[""] = []string{"b"}
		w.Header()["low-er"] = []string{"b"}
		say(w, "x")
	}},
	{"line ends in a trailer", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "A")
		say(w, "x")
		flush(w)
		w.Header().Set("A", "b\r\nInjected: c")
		w.Header()[http.TrailerPrefix+"B\r\nInjected"] = []string{"c"}
	}},
	{"trailers", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "A, b")
		w.Header().Add("Trailer", "C")
		say(w, "hello")
		w.Header().Set("A", "1")
		w.Header().Set("B", "2")
	}},
	{"trailers that nobody announced", func(w http.ResponseWriter, _ *http.Request) {
		say(w, "hello")
		flush(w)
		w.Header().Set(http.TrailerPrefix+"A", "1")
		w.Header().Add(http.TrailerPrefix+"A", "2")
	}},
	{"trailers that nobody announced, in a small answer", func(w http.ResponseWriter, _ *http.Request) {
		say(w, "hello")
		w.Header().Set(http.TrailerPrefix+"A", "1")
	}},
	{"trailers that must not be", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "Content-Length, Transfer-Encoding, Trailer, A")
		say(w, "hello")
		w.Header().Set("Content-Length", "5")
		w.Header().Set("A", "1")
	}},
	{"trailers and a length", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "A")
		w.Header().Set("Content-Length", "5")
		say(w, "hello")
		w.Header().Set("A", "1")
	}},
	{"the handler closes", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close"); say(w, "x") }},
	{"the handler closes, spelled otherwise", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "x, Close"); say(w, "x") }},
	{"the handler keeps", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "keep-alive"); say(w, "x") }},
	{"the handler upgrades with no 101", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "upgrade"); say(w, "x") }},
	{"a coding of chunked", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Transfer-Encoding", "chunked")
		say(w, "x")
	}},
	{"a coding of identity", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Transfer-Encoding", "identity")
		say(w, "x")
	}},
	{"abort at once", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	{"abort after writing little", func(w http.ResponseWriter, _ *http.Request) { say(w, "x"); panic(http.ErrAbortHandler) }},
	{"abort after a flush", func(w http.ResponseWriter, _ *http.Request) { say(w, "x"); flush(w); panic(http.ErrAbortHandler) }},
	{"abort after a flush, of known length", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "2")
		say(w, "x")
		flush(w)
		panic(http.ErrAbortHandler)
	}},
	{"a panic", func(http.ResponseWriter, *http.Request) { panic("on purpose") }},
	{"a panic after a flush of 100 KB", func(w http.ResponseWriter, _ *http.Request) { say(w, hundred); flush(w); panic("on purpose") }},
	{"Goexit", func(http.ResponseWriter, *http.Request) { runtime.Goexit() }},
	{"Goexit after a flush", func(w http.ResponseWriter, _ *http.Request) { say(w, "x"); flush(w); runtime.Goexit() }},
}

var variants = []struct{ name, method, head string }{
	{"GET", "GET", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
	{"HEAD", "HEAD", "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n"},
	{"GET of a client that closes", "GET", "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"},
	{"HTTP/1.0", "GET", "GET / HTTP/1.0\r\n\r\n"},
	{"HTTP/1.0 with keep-alive", "GET", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"},
	{"HEAD of HTTP/1.0 with keep-alive", "HEAD", "HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"},
}

// apart describes an intended difference to net/http's server.
type apart struct {
	why      string
	variants string // variants with this prefix, or all
	// like is the handler for which net/http's server sends the same response as Portico's for this one. nil: the same handler.
	like func(http.ResponseWriter, *http.Request)
	// without is text that only net/http's server sends.
	without string
	// first is set if net/http's server serves the next request and Portico's does not.
	first bool
}

func small(w http.ResponseWriter, _ *http.Request) { say(w, "hello") }

func ok(w http.ResponseWriter, _ *http.Request) { say(w, "ok") }

const keeping = "  \"Connection\": [\"keep-alive\"]\n"

var otherwise = map[string][]apart{
	"a length that is none":      {{why: "the client would read another one, or none", like: small}},
	"a length less than nothing": {{why: "the client would read another one, or none", like: small}},
	"a length and a coding":      {{why: "it closes", variants: "HTTP/1.0 with", without: keeping}},
	"a coding of chunked":        {{why: "it closes", variants: "HTTP/1.0 with", without: keeping}},
	"103 before":                 {{why: "HTTP/1.0 has no such thing", variants: "HTTP/1.0", like: ok}, {why: "the same", variants: "HEAD of HTTP/1.0", like: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "2"); say(w, "ok") }}},
	"100 before":                 {{why: "HTTP/1.0 has no such thing", variants: "HTTP/1.0", like: ok}, {why: "the same", variants: "HEAD of HTTP/1.0", like: ok}},
	"199 and nothing":            {{why: "HTTP/1.0 has no such thing", variants: "HTTP/1.0", like: func(http.ResponseWriter, *http.Request) {}}, {why: "the same", variants: "HEAD of HTTP/1.0", like: func(http.ResponseWriter, *http.Request) {}}},
	"101":                        {{why: "what follows is of another protocol", first: true}},
	"trailers that nobody announced, in a small answer": {{why: "the library forgets them", like: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Date", "some")
		w.Header().Set(http.TrailerPrefix+"A", "1")
		say(w, "hello")
	}}},
	"the handler closes, spelled otherwise": {{why: "HTTP/1.0 closes by itself", variants: "HTTP/1.0", without: "  \"Connection\": [\"x, Close\"]\n"}, {variants: "HTTP/1.0 with"}},
}

func TestBothServersResponses(t *testing.T) {
	for _, c := range answered {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			lib, our := implementations[0].open(t, rules{}, probed(c.handler)), implementations[1].open(t, rules{}, probed(c.handler))
			for _, v := range variants {
				t.Run(v.name, func(t *testing.T) {
					answeredAlike(t, lib, our, v.method, v.head, otherwise[c.name], v.name)
				})
			}
			panics := strings.Contains(c.name, "panic") || c.name == "a status that is none" || c.name == "a status of four digits"
			for _, a := range []*serverUnderTest{lib, our} {
				if said := a.said.String(); strings.Contains(said, "panic serving") != panics {
					t.Errorf("%s logged %q, want a panic: %t", a.name, said, panics)
				}
			}
		})
	}
}

func answeredAlike(t *testing.T, lib, our *serverUnderTest, method, head string, differences []apart, variant string) {
	t.Helper()
	got := readAnswers(t, hear(t, our.dial(t), head+probe), method)
	var d apart
	for _, one := range differences {
		if strings.HasPrefix(variant, one.variants) {
			d = one
		}
	}
	if d.like != nil {
		lib = implementations[0].open(t, rules{}, probed(d.like))
	}
	want := readAnswers(t, hear(t, lib.dial(t), head+probe), method)
	if d.first {
		want = want[:1]
	}
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], d.without, "")
	}
	if d.without != "" && strings.Contains(strings.Join(got, ""), d.without) {
		t.Errorf("response of Portico's server contains %q, want it without", d.without)
	}
	compare(t, got, want)
}
