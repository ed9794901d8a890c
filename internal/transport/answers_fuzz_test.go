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

// looked is a connection whose responses are inspected as on an http1Conn.
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

// Write implements net.Conn. net/http writes each of these requests in one call.
func (c *looked) Write(p []byte) (int, error) {
	asks := inFlightRequest
	if strings.HasPrefix(string(p), http.MethodHead) {
		asks = inFlightHead
	}
	c.plain.inFlight.Store(asks)
	return c.Conn.Write(p)
}

// clientOutcome is the result of a client's requests to a backend that responds to the first one with given bytes.
type clientOutcome struct {
	text  string
	err   error
	fresh bool // the second request used another connection
}

// askTwice sends two requests with net/http's client to a backend that responds with raw, in two parts. It must run in a synctest bubble.
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
	time.Sleep(time.Second) // the client notices bytes after the response
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

// serveRaw responds to the first request of the first connection with raw, and to all other requests with a valid response.
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

// FuzzInspectedResponsesMatchNetHTTP compares net/http's client with and without Portico's inspection: a response that passes is the
// same response, and one that fails is a malformedError. Bytes after a response are never the next response.
func FuzzInspectedResponsesMatchNetHTTP(f *testing.F) {
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
	log.SetOutput(io.Discard) // net/http logs each unsolicited response
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
		var lie malformedError // net/http may wrap a read error
		if end := first.plain.readErr.Load(); end != nil {
			_ = errors.As(*end, &lie)
		}
		switch {
		case strings.Contains(with.text, "and the next answer"):
			t.Errorf("second response after %q = %s, want none from the extra bytes", raw, with.text)
		case with.err != nil && bare.err == nil && lie == "":
			t.Errorf("response %q inspected: error %v without a malformedError, want %s as without the inspection", raw, with.err, bare.text)
		case with.err == nil && bare.err != nil:
			t.Errorf("response %q inspected = %s, want the error %v as without the inspection", raw, with.text, bare.err)
		case with.err == nil && with.text != bare.text && !strings.Contains(bare.text, "and the next answer"):
			t.Errorf("response %q inspected = %s, want %s as without the inspection", raw, with.text, bare.text)
		}
	})
}
