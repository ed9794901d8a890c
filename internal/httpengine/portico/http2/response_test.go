package http2_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// told describes a response. A date is only reported as present.
func (a *answer) told() string {
	spell := func(list []hpack.HeaderField) string {
		var words []string
		for _, f := range list {
			switch f.Name {
			case ":status":
				continue
			case "date":
				f.Value = "now"
			}
			words = append(words, f.Name+"="+f.Value)
		}
		slices.Sort(words)
		return strings.Join(words, " ")
	}
	words := slices.Clone(a.interim)
	words = append(words, a.status())
	words = append(words, spell(a.header))
	if len(a.body) > 100 {
		words = append(words, fmt.Sprintf("%d bytes", len(a.body)))
	} else if len(a.body) > 0 {
		words = append(words, fmt.Sprintf("%q", a.body))
	}
	if a.trailer != nil {
		words = append(words, "trailer "+spell(a.trailer))
	}
	switch {
	case a.reset != "":
		words = append(words, "RST "+a.reset)
	case a.lost != nil:
		words = append(words, "lost")
	}
	if a.goneAway != "" {
		words = append(words, "GOAWAY "+a.goneAway)
	}
	return strings.Join(words, " | ")
}

func TestClientsReceiveHandlerResponse(t *testing.T) {
	say := func(s string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) }
	}
	code := func(code int, then string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			if n, err := io.WriteString(w, then); then != "" && (n != 0 || !errors.Is(err, http.ErrBodyNotAllowed)) {
				panic(fmt.Sprint("written: ", n, err))
			}
		}
	}
	flush := func(w http.ResponseWriter) {
		if err := http.NewResponseController(w).Flush(); err != nil {
			panic(err)
		}
	}
	const html, text = "text/html; charset=utf-8", "text/plain; charset=utf-8"
	for _, test := range []struct {
		name    string
		method  string
		handler http.HandlerFunc
		want    string
		library string // the result of net/http if it differs
	}{
		{"nothing", "GET", say(""), "200 | content-length=0 date=now", ""},
		{"text", "GET", say("abc"), `200 | content-length=3 content-type=` + text + ` date=now | "abc"`, ""},
		{"what looks like HTML", "GET", say("<html>"), `200 | content-length=6 content-type=` + html + ` date=now | "<html>"`, ""},
		{"what does not fit", "GET", say(strings.Repeat("a", 5000)), `200 | content-type=` + text + ` date=now | 5000 bytes`, ""},
		{"what just fits", "GET", say(strings.Repeat("a", 4096)), `200 | content-length=4096 content-type=` + text + ` date=now | 4096 bytes`, ""},
		{"larger than a window", "GET", say(strings.Repeat("a", 200_000)), `200 | content-type=` + text + ` date=now | 200000 bytes`, ""},
		{"a type that is given", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{}")
		}, `200 | content-length=2 content-type=application/json date=now | "{}"`, ""},
		{"a type that is given as nothing", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, "{}")
		}, `200 | content-length=2 date=now | "{}"`, ""},
		{"encoded", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, "x")
		}, `200 | content-encoding=gzip content-length=1 date=now | "x"`, ""},
		{"a date that is given", "GET", func(w http.ResponseWriter, _ *http.Request) { w.Header()["Date"] = nil }, "200 | content-length=0", ""},
		{"many values", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["X"] = []string{"b", "a", ""}
			w.Header().Set("X-Bad", "a\nb")
			w.Header()["bad name"] = []string{"x"}
		}, "200 | content-length=0 date=now x= x=a x=b", ""},
		{"what belongs to a connection", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Keep-Alive", "1")
			w.Header().Set("Connection", "x")
			w.Header().Set("Proxy-Connection", "x")
			w.Header().Set("Transfer-Encoding", "chunked")
			w.Header().Set("Upgrade", "x")
		}, "200 | content-length=0 date=now", "200 | content-length=0 date=now keep-alive=1 proxy-connection=x upgrade=x"},
		{"headers that are set too late", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(201)
			w.Header().Set("X", "late")
			w.WriteHeader(202)
		}, "201 | content-length=0 date=now", ""},
		{"204", "GET", code(204, "x"), "204 | date=now", ""},
		{"304", "GET", code(304, "x"), "304 | date=now", ""},
		{"404", "GET", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 404) },
			`404 | content-length=3 content-type=` + text + ` date=now x-content-type-options=nosniff | "no\n"`, ""},
		{"a code that nobody knows", "GET", code(799, ""), "799 | content-length=0 date=now", ""},
		{"HEAD, nothing", "HEAD", say(""), "200 | date=now", ""},
		{"HEAD, text", "HEAD", say("abc"), "200 | content-length=3 content-type=" + text + " date=now", ""},
		{"HEAD, a length", "HEAD", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "1000") }, "200 | content-length=1000 date=now", ""},
		{"HEAD, more than fits", "HEAD", say(strings.Repeat("a", 200_000)), "200 | content-type=" + text + " date=now", ""},
		{"HEAD, flushed", "HEAD", func(w http.ResponseWriter, _ *http.Request) {
			flush(w)
			_, _ = io.WriteString(w, "abc")
			flush(w)
		}, "200 | date=now", ""},
		{"a length", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "3")
			_, _ = io.WriteString(w, "abc")
		}, `200 | content-length=3 content-type=` + text + ` date=now | "abc"`, ""},
		{"more than the length", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "3")
			_, _ = io.WriteString(w, "abc")
			if _, err := io.WriteString(w, "d"); err == nil {
				panic("taken")
			}
		}, `200 | content-length=3 content-type=` + text + ` date=now | "abc"`,
			" |  | RST INTERNAL_ERROR"}, // net/http accepts it.
		{"a length that is none", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "x")
			_, _ = io.WriteString(w, "abc")
		}, `200 | content-length=3 content-type=` + text + ` date=now | "abc"`, ""},
		{"flushed", "GET", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "abc")
			flush(w)
			_, _ = io.WriteString(w, "def")
		}, `200 | content-type=` + text + ` date=now | "abcdef"`, ""},
		{"flushed first", "GET", func(w http.ResponseWriter, _ *http.Request) {
			flush(w)
			_, _ = io.WriteString(w, "abc")
		}, `200 | date=now | "abc"`, ""},
		{"trailers", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum, X-Absent")
			_, _ = io.WriteString(w, "abc")
			w.Header().Set("X-Sum", "1")
		}, `200 | content-length=3 content-type=` + text + ` date=now trailer=X-Sum, X-Absent | "abc" | trailer x-sum=1`, ""},
		{"trailers that were not announced", "GET", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "abc")
			w.Header().Set(http.TrailerPrefix+"X-Sum", "1")
		}, `200 | content-length=3 content-type=` + text + ` date=now | "abc" | trailer x-sum=1`, ""},
		{"trailers without a body", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			w.WriteHeader(200)
			w.Header().Set("X-Sum", "1")
		}, `200 | content-length=0 date=now trailer=X-Sum | trailer x-sum=1`, ""},
		{"what comes before", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "x")
			w.WriteHeader(103)
			w.WriteHeader(102)
			w.Header().Del("Link")
			_, _ = io.WriteString(w, "abc")
		}, `103 | 102 | 200 | content-length=3 content-type=` + text + ` date=now | "abc"`, ""},
		{"Connection: close", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			w.WriteHeader(200)
			flush(w)
		}, `200 | date=now | GOAWAY NO_ERROR`, ""},
		{"ErrAbortHandler before anything", "GET", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, " |  | RST INTERNAL_ERROR", ""},
		{"a panic after something", "GET", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "abc")
			flush(w)
			panic("on purpose")
		}, `200 | content-type=` + text + ` date=now | "abc" | RST INTERNAL_ERROR`, ""},
		{"a code that is none", "GET", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(99) }, " |  | RST INTERNAL_ERROR", ""},
		{"less than the length", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			_, _ = io.WriteString(w, "abc")
		}, `200 | content-length=9 content-type=` + text + ` date=now | "abc"`, ""}, // net/http sniffs the type.
		{"what a panic leaves", "GET", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "abc") // not flushed
			panic(http.ErrAbortHandler)
		}, ` |  | RST INTERNAL_ERROR`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			onBothSides(t, options{}, test.handler, func(t *testing.T, s *testServer, side string) {
				p := s.greet(t)
				want := test.want
				if side != ours && test.library != "" {
					want = test.library
				}
				if got := p.await(p.open(true, request(test.method, "/")...)).told(); got != want {
					t.Errorf("response = %s\nwant %s", got, want)
				}
			})
		})
	}
}

// Flushed bytes arrive while the handler runs.
func TestFlushedBytesArriveAtOnce(t *testing.T) {
	next := make(chan struct{})
	handler := func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		for i := range 5 {
			fmt.Fprintf(w, "event %d\n", i)
			if err := c.Flush(); err != nil {
				t.Error(err)
			}
			select {
			case <-next:
			case <-r.Context().Done():
			}
		}
	}
	onBothSides(t, options{}, handler, func(t *testing.T, s *testServer, _ string) {
		p := s.greet(t)
		id := p.get("/")
		for i := range 5 {
			a := p.awaitUntil(id, func(a *answer) bool { return bytes.HasSuffix(a.body, []byte("\n")) })
			if want := fmt.Sprintf("event %d\n", i); string(a.body) != want {
				t.Fatalf("body = %q, want %q; error %v", a.body, want, a.lost)
			}
			next <- struct{}{}
		}
		if a := p.await(id); !a.ended || a.lost != nil {
			t.Errorf("end of the response = %+v, want its end without an error", a)
		}
	})
}

// Headers of any size are sent, and other requests are answered at the same time.
func TestLargeHeadersAreSent(t *testing.T) {
	handler := func(w http.ResponseWriter, _ *http.Request) {
		for i := range 40 {
			w.Header().Set(fmt.Sprint("X-", i), strings.Repeat("x", 10_000))
		}
	}
	onBothSides(t, options{}, handler, func(t *testing.T, s *testServer, _ string) {
		p := s.greet(t)
		left := map[uint32]bool{}
		for range 3 {
			left[p.get("/")] = true
		}
		for range 200 {
			p.tell(p.WritePing(false, [8]byte{}))
		}
		for len(left) > 0 {
			f, err := p.event()
			if err != nil {
				t.Fatalf("%d PINGs are unanswered: %v, want 0", len(left), err)
			}
			if over(f) {
				delete(left, f.Header().StreamID)
			}
		}
	})
}
