package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// looked is a connection whose answers are looked at as a http1Conn's are.
type looked struct {
	net.Conn
	plain http1Conn
}

// Read implements net.Conn.
func (c *looked) Read(p []byte) (int, error) {
	if end := c.plain.readErr.Load(); end != nil {
		return 0, *end
	}
	n, err := c.Conn.Read(p)
	good, wrong := c.plain.inspect(p[:n])
	if wrong != nil {
		n, err = good, wrong
	}
	if err != nil {
		c.plain.endReads(err)
	}
	return n, err
}

// Write implements net.Conn. The library writes these requests at once.
func (c *looked) Write(p []byte) (int, error) {
	asks := inFlightRequest
	if strings.HasPrefix(string(p), http.MethodHead) {
		asks = inFlightHead
	}
	c.plain.inFlight.Store(asks)
	return c.Conn.Write(p)
}

// clientOutcome is what a client made of bytes that a backend said in answer to its first request.
type clientOutcome struct {
	text  string
	err   error
	fresh bool // the request after it went over another connection
}

// askTwice has the library's client ask a backend that says raw, in two parts, and then ask again. It is called in a bubble.
func askTwice(method, raw string, cut int, wrap func(net.Conn) net.Conn) (o clientOutcome) {
	var all sync.WaitGroup
	dials := 0
	tr := &http.Transport{DisableCompression: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		first := dials == 0
		dials++
		all.Go(func() { serveRaw(theirs, first, raw, cut) })
		return wrap(ours), nil
	}}
	var first *http.Response
	if first, o.err = tr.RoundTrip(plainRequest(method)); o.err == nil {
		var body []byte
		if body, o.err = io.ReadAll(first.Body); o.err == nil {
			o.text = fmt.Sprintf("%d length %d %v header %s body %q trailer %s", first.StatusCode, first.ContentLength, first.TransferEncoding,
				sortedFields(first.Header), body, sortedFields(first.Trailer))
		}
		_ = first.Body.Close()
	}
	time.Sleep(time.Second) // what follows an answer is noticed
	synctest.Wait()
	before := dials
	if second, err := tr.RoundTrip(plainRequest(http.MethodGet)); err == nil {
		body, _ := io.ReadAll(second.Body)
		_ = second.Body.Close()
		if string(body) != "well" {
			o.text += fmt.Sprintf(", and the next answer is %q", body)
		}
	}
	o.fresh = dials > before
	tr.CloseIdleConnections()
	all.Wait()
	return o
}

func plainRequest(method string) *http.Request {
	r, err := http.NewRequestWithContext(context.Background(), method, "http://backend.example/", nil)
	if err != nil {
		panic(err)
	}
	return r
}

// serveRaw answers the first request of the first connection with raw, and all others well.
func serveRaw(c net.Conn, first bool, raw string, cut int) {
	defer func() { _ = c.Close() }()
	b := bufio.NewReader(c)
	for {
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := http.ReadRequest(b); err != nil {
			return
		}
		answer := "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwell"
		if first {
			if _, err := io.WriteString(c, raw[:cut]); err != nil {
				return
			}
			synctest.Wait()
			answer, first = raw[cut:], false
		}
		_ = c.SetWriteDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

func sortedFields(h http.Header) string {
	var all []string
	for name, values := range h {
		all = append(all, fmt.Sprintf("%q=%q", name, values))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// FuzzAnswersToTheLibrary holds the library's client with our look at each answer to the same without it: an answer that passes is the
// same answer, and what does not is an malformedError. What is said after an answer is never the next one.
func FuzzAnswersToTheLibrary(f *testing.F) {
	for _, a := range fine {
		f.Add(a.method == http.MethodHead, a.text, 7)
		f.Add(a.method == http.MethodHead, a.text+okHead+"Content-Length: 3\r\n\r\nbad", 0)
	}
	for _, l := range headLies {
		f.Add(false, l.text, 3)
	}
	for _, l := range bodyLies {
		f.Add(false, l.text, 60)
	}
	old := log.Writer()
	log.SetOutput(io.Discard) // the library tells of each answer that nobody asked for
	f.Cleanup(func() { log.SetOutput(old) })
	f.Fuzz(func(t *testing.T, head bool, raw string, cut int) {
		method := http.MethodGet
		if head {
			method = http.MethodHead
		}
		cut = max(0, min(cut, len(raw)))
		var with, bare clientOutcome
		var first *looked
		synctest.Test(t, func(*testing.T) {
			with = askTwice(method, raw, cut, func(c net.Conn) net.Conn {
				l := &looked{Conn: c}
				if first == nil {
					first = l
				}
				return l
			})
		})
		synctest.Test(t, func(*testing.T) {
			bare = askTwice(method, raw, cut, func(c net.Conn) net.Conn { return c })
		})
		var lie malformedError // the library wraps what reading returns, or not
		if end := first.plain.readErr.Load(); end != nil {
			_ = errors.As(*end, &lie)
		}
		switch {
		case strings.Contains(with.text, "and the next answer"):
			t.Errorf("%q: %s", raw, with.text)
		case with.err != nil && bare.err == nil && lie == "":
			t.Errorf("%q: %v, and without our look %s", raw, with.err, bare.text)
		case with.err == nil && bare.err != nil:
			t.Errorf("%q: %s, and without our look %v", raw, with.text, bare.err)
		case with.err == nil && with.text != bare.text && !strings.Contains(bare.text, "and the next answer"):
			t.Errorf("%q: %s, and without our look %s", raw, with.text, bare.text)
		}
	})
}
