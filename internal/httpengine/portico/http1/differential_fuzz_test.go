package http1

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http/httpguts"
)

// observed is a request in a handler with the result of reading its body.
type observed struct {
	seen
	failed error // error of reading the body
}

// outcome is a server's reaction to its input.
type outcome struct {
	requests []observed
	answers  []int  // final statuses, without interim responses
	why      string // text of the last response if Portico's server refused the request
	open     bool   // The server waits for more input.
}

// fuzzTimeout is longer than a server may take to close a failed connection and shorter than the read timeout.
const fuzzTimeout = 4 * time.Second

// runRaw sends raw to a server and waits until the server is idle or closed. It is called in a bubble.
func runRaw(raw []byte, reads bool, serve func(net.Conn, http.Handler)) (o outcome) {
	var mu sync.Mutex
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one, err := see(r, reads)
		one.URL.User = nil
		mu.Lock()
		o.requests = append(o.requests, observed{one, err})
		mu.Unlock()
		_, _ = io.WriteString(w, "ok")
	})
	ours, theirs := net.Pipe()
	var heard bytes.Buffer
	var all sync.WaitGroup
	all.Go(func() { serve(ours, handler) })
	ended := make(chan struct{})
	all.Go(func() {
		defer close(ended)
		_, _ = io.Copy(&heard, theirs)
	})
	_ = theirs.SetWriteDeadline(time.Now().Add(fuzzTimeout))
	_, _ = theirs.Write(raw)
	time.Sleep(fuzzTimeout)
	synctest.Wait()
	select {
	case <-ended:
	default:
		o.open = true
	}
	_ = theirs.Close()
	all.Wait()
	o.read(heard.Bytes())
	return o
}

// read parses the responses.
func (o *outcome) read(text []byte) {
	b := bufio.NewReader(bytes.NewReader(text))
	for {
		method := http.MethodGet
		if n := len(o.answers); n < len(o.requests) {
			method = o.requests[n].Method
		}
		res, err := http.ReadResponse(b, &http.Request{Method: method})
		if err != nil {
			return
		}
		body, _ := io.ReadAll(res.Body) // It may be truncated.
		if res.StatusCode < 200 {
			continue
		}
		var status struct{ Message string }
		if json.Unmarshal(body, &status) == nil {
			o.why = status.Message
		}
		o.answers = append(o.answers, res.StatusCode)
	}
}

// refused reports whether the server's last response refuses a request.
func (o *outcome) refused() bool {
	return len(o.answers) > 0 && o.answers[len(o.answers)-1] >= 400
}

func (o *outcome) String() string {
	var s strings.Builder
	for _, r := range o.requests {
		fmt.Fprintf(&s, "  %+v, %v\n", r.seen, r.failed)
	}
	fmt.Fprintf(&s, "  answers %d %q, open %v", o.answers, o.why, o.open)
	return s.String()
}

func serveOurs(c net.Conn, h http.Handler) {
	s := New(Config{Handler: h, DisconnectCheckDelay: time.Second})
	s.begin(c, c, nil, func() {})()
	s.Close()
}

func serveLibrary(c net.Conn, h http.Handler) {
	s := &http.Server{
		Handler: h, MaxHeaderBytes: 64 << 10, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 90 * time.Second,
		ErrorLog: log.New(io.Discard, "", 0), DisableGeneralOptionsHandler: true, Protocols: new(http.Protocols),
	}
	s.Protocols.SetHTTP1(true)
	closed := make(chan struct{})
	l := &once{conns: make(chan net.Conn, 1), gone: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.gone) })
	s.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			close(closed)
		}
	}
	var all sync.WaitGroup
	all.Go(func() { _ = s.Serve(l) })
	l.conns <- c
	<-closed
	_ = s.Close()
	all.Wait()
}

// named is an intended difference with its reason. only selects requests, as parsed by net/http; nil selects all.
type named struct {
	text, why string
	only      func(r *seen) bool
}

// refusals are requests that Portico's server refuses and net/http's accepts, by the text of the refusal.
var refusals = []named{
	{"a line of the request ends without CR", "a front that needs CRLF sees another request", nil},
	{"a header of the request is folded over two lines", "RFC 9112, 5.2: whether it is one header or two", nil},
	{"the path of the request", "the rule table (handler/rules.go): RFC 3986, and one reading", nil},
	{"the query of the request", "the same", nil},
	{"the authority of the request", "the same: RFC 3986, 3.2, RFC 9110, 4.2.4", nil},
	{"the request has both a Content-Length and a Transfer-Encoding", "CVE-2025-22871 and its kin", nil},
	{"the request has more than one Content-Length", "two is one too many", nil},
	{"a request of HTTP/1.0 has a Transfer-Encoding", "HTTP/1.0 has no codings", nil},
	{"the version of HTTP is not supported", "what another version of HTTP/1 would mean is not known", nil},
	{"the request has no Host", "HTTP/1.1 has a Host, with CONNECT too", nil},
	{"the method of the request has the byte 0x0d at offset 0", "after a POST the library passes over up to four CRs and LFs, ours over one empty line", nil},
	{"the request does not begin with a method", "the same", nil},
	{"empty lines before the request", "the same", nil},
	{"the method of the request is longer than", "RFC 9112, 3: 501 for what is longer than any method that is known", nil},
	{"the target of the request is longer than", "RFC 9112, 3: 414", nil},
	{"the field name of the request is longer than", "RFC 6585, 5: the bounds of the rule table", nil},
	{"the field value of the request is longer than", "the same", nil},
	{"the request has more than", "RFC 6585, 5: header fields have a number, and Host and Content-Length are one", nil},
	{"the request expects what this server does not do", "RFC 9110, 10.1.1: 417; the library takes 100-continue for one as a word of something else", func(r *seen) bool {
		return asWord(r.Header["Expect"], "100-continue")
	}},
	{"the request line is not a method, a target and a version", "RFC 9112, 3.2.3: CONNECT has an authority, which the library lets be empty", func(r *seen) bool {
		return r.Method == http.MethodConnect && r.Target == ""
	}},
	{"the request announces a trailer that must not be one", "RFC 9110, 6.5.1", nil},
	{"the request announces more than", "CVE-2026-78659: trailers have a number", nil},
}

// bodyRefusals are bodies that only net/http's server accepts.
var bodyRefusals = []named{
	{errChunkLine.Error(), "lines end with CRLF, the last one too", nil},
	{errChunkSize.Error(), "no control characters in extensions, no blanks after sizes", nil},
	{errBadTrailer.Error(), "names and values of trailers are those of headers", nil},
	{errExcess.Error(), "CVE-2023-39326: bounds of our own", nil},
}

// isNamed finds the difference with this text for a request. r is nil if net/http did not parse the request.
func isNamed(list []named, text string, r *seen) bool {
	return slices.ContainsFunc(list, func(n named) bool { return strings.HasPrefix(text, n.text) && (n.only == nil || r != nil && n.only(r)) })
}

// emptyLine reports whether an empty line follows n requests. Portico's server accepts one (RFC 9112, 2.2) and net/http's does not.
func emptyLine(raw []byte, n int) bool {
	b := bufio.NewReaderSize(bytes.NewReader(raw), len(raw)+16)
	for range n {
		r, err := http.ReadRequest(b)
		if err != nil {
			return false
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return false
		}
	}
	next, _ := b.Peek(2)
	return len(next) > 0 && strings.HasPrefix("\r\n", string(next))
}

// ending is a reason for which only one server closes the connection after a request.
type ending struct {
	why string
	is  func(h http.Header, r observed) bool
}

// ourEndings are requests after which Portico's server closes the connection.
var ourEndings = []ending{
	{"CONNECT: what follows may be meant for a tunnel (RFC 9110, 9.3.6)", func(_ http.Header, r observed) bool { return r.Method == http.MethodConnect }},
	{"HTTP/1.0 that is to be kept and closed: close goes before keep-alive (RFC 9112, 9.3)", func(h http.Header, r observed) bool {
		return r.Proto == "HTTP/1.0" && hasOption(h, "keep-alive") && hasOption(h, "close")
	}},
	{"HTTP/1.0 that is to be kept as a word of an option that is none (RFC 9110, 7.6.1)", func(h http.Header, r observed) bool {
		return r.Proto == "HTTP/1.0" && asWord(h["Connection"], "keep-alive")
	}},
}

// libraryEndings are requests after which net/http's server closes the connection.
var libraryEndings = []ending{
	{"close as a word of an option that is none (RFC 9110, 7.6.1)", func(h http.Header, _ observed) bool { return asWord(h["Connection"], "close") }},
	{"HTTP/1.0 that is to be kept in another line than the first: lines are one list (RFC 9110, 5.3)", func(h http.Header, r observed) bool {
		return r.Proto == "HTTP/1.0" && hasOption(h, "keep-alive") && !slices.Contains(words(h.Get("Connection")), "keep-alive")
	}},
}

// endsAfter reports whether the last of the requests is a reason to close the connection.
func endsAfter(endings []ending, requests []observed) bool {
	return len(requests) > 0 && slices.ContainsFunc(endings, func(e ending) bool {
		last := requests[len(requests)-1]
		return e.is(last.Header, last)
	})
}

func hasOption(h http.Header, option string) bool {
	return httpguts.HeaderValuesContainsToken(h["Connection"], option)
}

// words splits a list at commas and spaces, like net/http.
func words(list string) []string {
	return strings.FieldsFunc(strings.ToLower(list), func(r rune) bool { return r == ' ' || r == ',' || r == '\t' })
}

// asWord reports whether only net/http counts a word as an element of a list. It reads only the first line.
func asWord(values []string, word string) bool {
	return len(values) > 0 && slices.Contains(words(values[0]), word) && !httpguts.HeaderValuesContainsToken(values, word)
}

// chunked reports whether the last request has a chunked body.
func chunked(requests []observed) bool {
	return len(requests) > 0 && len(requests[len(requests)-1].Coding) > 0
}

// compareOutcomes returns the first unnamed difference.
func compareOutcomes(raw []byte, reads bool, ours, theirs *outcome) (unnamed string) {
	oursEnds := endsAfter(ourEndings, ours.requests) && !ours.open && !ours.refused()
	libraryEnds := endsAfter(libraryEndings, theirs.requests) && !theirs.open && !theirs.refused()
	for i := range max(len(ours.requests), len(theirs.requests)) {
		switch {
		case i >= len(ours.requests):
			if ours.refused() && isNamed(refusals, ours.why, &theirs.requests[i].seen) || oursEnds || !reads && !ours.open && chunked(ours.requests) {
				return ""
			}
			return fmt.Sprintf("request %d is one to the library only", i)
		case i >= len(theirs.requests):
			if emptyLine(raw, i) || libraryEnds {
				return ""
			}
			return fmt.Sprintf("request %d is one to ours only", i)
		}
		o, l := ours.requests[i], theirs.requests[i]
		switch {
		case o.failed != nil && isNamed(bodyRefusals, o.failed.Error(), &l.seen) && l.failed == io.ErrUnexpectedEOF: // It waited for the rest of the body.
			return ""
		case o.failed != nil && l.failed != nil:
			o.Body, l.Body, o.Trailer, l.Trailer = "", "", nil, nil // The forwarded part may differ.
		case o.failed != nil:
			if isNamed(bodyRefusals, o.failed.Error(), &l.seen) {
				return ""
			}
			return fmt.Sprintf("the body of request %d is one to the library only: %v", i, o.failed)
		case l.failed != nil:
			return fmt.Sprintf("the body of request %d is one to ours only: %v", i, l.failed)
		}
		if l.dropTrailers(); !reflect.DeepEqual(o.seen, l.seen) {
			return fmt.Sprintf("request %d is not the same", i)
		}
	}
	switch {
	case !reads && !ours.open && chunked(ours.requests): // Only net/http's server treats the rest of an unread body as a body: see bodyRefusals.
	case oursEnds, libraryEnds: // The following input is not a request for them.
	case ours.refused() && theirs.open, theirs.refused() && ours.open: // An incomplete header may be refused early or late.
	case ours.refused() != theirs.refused() && !(ours.refused() && isNamed(refusals, ours.why, nil)) && !emptyLine(raw, len(theirs.requests)):
		return "one refuses what follows"
	case len(theirs.answers) < len(theirs.requests) && theirs.open: // It waits for the rest of an unread body. Portico's server responds.
	case ours.open != theirs.open && ours.refused() == theirs.refused():
		return "one waits for more"
	}
	return ""
}

// FuzzServerDifferential compares Portico's server with net/http's. The same bytes must cause the same requests, bodies and end, or a
// named difference.
func FuzzServerDifferential(f *testing.F) {
	for _, c := range fine {
		if len(c.raw) < 2000 {
			f.Add([]byte(c.raw+probe), true)
			f.Add([]byte(c.raw+c.raw), false)
		}
	}
	for _, c := range malformedRequests {
		if len(c.raw) < 2000 {
			f.Add([]byte(c.raw+probe), true)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte, reads bool) {
		var ours, theirs outcome
		synctest.Test(t, func(*testing.T) { ours = runRaw(raw, reads, serveOurs) })
		synctest.Test(t, func(*testing.T) { theirs = runRaw(raw, reads, serveLibrary) })
		if unnamed := compareOutcomes(raw, reads, &ours, &theirs); unnamed != "" {
			t.Errorf("input %q: %s, want no difference\nPortico:\n%v\nnet/http:\n%v", raw, unnamed, &ours, &theirs)
		}
	})
}
