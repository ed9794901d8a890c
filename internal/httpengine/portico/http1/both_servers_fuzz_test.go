package http1

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http/httpguts"

	"portico.dev/internal/httpengine/httpmsg"
)

// scriptedConn is a connection whose client sends a few bytes at a time and records the response.
type scriptedConn struct {
	said  *bytes.Reader
	step  int
	heard bytes.Buffer
}

// Read implements io.Reader.
func (c *scriptedConn) Read(p []byte) (int, error) { return c.said.Read(p[:min(len(p), c.step)]) }

// Write implements io.Writer.
func (c *scriptedConn) Write(p []byte) (int, error)    { return c.heard.Write(p) }
func (*scriptedConn) Close() error                     { return nil }
func (*scriptedConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*scriptedConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*scriptedConn) SetDeadline(time.Time) error      { return nil }
func (*scriptedConn) SetReadDeadline(time.Time) error  { return nil }
func (*scriptedConn) SetWriteDeadline(time.Time) error { return nil }

// play lets Portico's server read raw and returns the response.
func play(raw []byte, step int, h http.HandlerFunc) string {
	s := New(Config{DisconnectCheckDelay: time.Hour, Handler: h})
	conn := &scriptedConn{said: bytes.NewReader(raw), step: step}
	s.begin(conn, conn, nil, nil)()
	if s.disconnects.timer != nil {
		s.disconnects.timer.Stop()
	}
	return conn.heard.String()
}

// seen is a request, with its body if a handler reads it.
type seen struct {
	Method, Target, Host, Proto string
	URL                         url.URL
	Header, Announced, Trailer  http.Header
	Length                      int64
	Coding                      []string
	Close                       bool
	Body                        string
}

func see(r *http.Request, reads bool) (seen, error) {
	s := seen{Method: r.Method, Target: r.RequestURI, Host: r.Host, Proto: r.Proto, URL: *r.URL, Header: r.Header.Clone(),
		Announced: r.Trailer.Clone(), Length: r.ContentLength, Coding: r.TransferEncoding, Close: r.Close}
	if !reads {
		return s, nil
	}
	body, err := io.ReadAll(r.Body)
	s.Body = string(body)
	for name, values := range r.Trailer {
		if s.Trailer == nil {
			s.Trailer = http.Header{}
		}
		s.Trailer[name] = values
	}
	return s, err
}

// dropTrailers removes trailers that are not allowed (RFC 9110, 6.5.1). Portico's server drops them. net/http's does not, or not all.
func (s *seen) dropTrailers() {
	for name := range s.Trailer {
		if !httpmsg.ValidTrailer(name) {
			delete(s.Trailer, name)
		}
	}
	if len(s.Trailer) == 0 {
		s.Trailer = nil
	}
}

// Every request that Portico's server accepts is also accepted by net/http, with the same fields, length and position.
func FuzzHead(f *testing.F) {
	for _, c := range fine {
		if len(c.raw) < 2000 {
			f.Add([]byte(c.raw+probe), uint8(255), true)
			f.Add([]byte(c.raw+probe), uint8(3), false)
		}
	}
	for _, c := range malformedRequests {
		if len(c.raw) < 2000 {
			f.Add([]byte(c.raw+probe), uint8(255), true)
			f.Add([]byte(c.raw+probe), uint8(0), false)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte, step uint8, reads bool) {
		var served []seen
		play(raw, int(step)+1, func(_ http.ResponseWriter, r *http.Request) {
			if one, err := see(r, reads); err == nil {
				served = append(served, one)
			}
		})
		b := bufio.NewReaderSize(bytes.NewReader(raw), 1<<20)
		for i, got := range served {
			if p, _ := b.Peek(2); string(p) == "\r\n" { // Portico's server accepts one empty line before each request.
				_, _ = b.Discard(2)
			}
			r, err := http.ReadRequest(b)
			if err != nil {
				t.Fatalf("request %d = %+v, want an error as from net/http: %v", i, got, err)
			}
			delete(r.Header, "Host")
			want, err := see(r, reads)
			if err != nil {
				t.Fatalf("request %d = %+v, want a body that ends with %v as in net/http", i, got, err)
			}
			want.dropTrailers()
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("request %d =\n%+v, want as in net/http\n%+v", i, got, want)
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil && i+1 < len(served) {
				t.Fatalf("request %d has a body that ends with %v and a successor, want no successor", i, err)
			}
		}
	})
}

// For each handler the server sends exactly one response, which contains only the handler's data.
func FuzzAnswer(f *testing.F) {
	f.Add("A", "b\r\nInjected: c\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", 200, "hello", false, false)
	f.Add("Connection", "close\r\nA: b", 404, "", true, false)
	f.Add("Transfer-Encoding", "gzip\r\n\r\n", 200, "hello", true, true)
	f.Add("Content-Length", "5", 200, "hello", false, true)
	f.Add("Content-Length", " +3\n", 200, "hello", false, false)
	f.Add("Trailer", "A, Content-Length, B\r\n", 204, "hello", true, false)
	f.Add(http.TrailerPrefix+"A\r\n\r\n", "b", 999, "hello", true, false)
	f.Add("Date\n", "x", 304, "", false, false)
	f.Fuzz(func(t *testing.T, name, value string, status int, body string, flushes, old bool) {
		raw := "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
		if old {
			raw = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
		}
		cut := len(body) / 2
		var wrote int
		heard := play([]byte(raw), 1<<20, func(w http.ResponseWriter, _ *http.Request) {
			w.Header()[name] = []string{value}
			if status >= 200 && status <= 999 {
				w.WriteHeader(status)
			}
			n, _ := io.WriteString(w, body[:cut])
			wrote += n
			if flushes {
				flush(w)
			}
			w.Header()[name] = append(w.Header()[name], value)
			n, _ = io.WriteString(w, body[cut:])
			wrote += n
		})
		b := bufio.NewReader(strings.NewReader(heard))
		res, err := http.ReadResponse(b, nil)
		if err != nil {
			if strings.EqualFold(name, "Transfer-Encoding") || strings.EqualFold(name, "Content-Length") ||
				strings.EqualFold(name, "Trailer") && strings.Contains(err.Error(), "bad trailer key") ||
				!httpguts.ValidHeaderFieldValue(strings.NewReplacer("\r", " ", "\n", " ").Replace(value)) {
				return // an invalid field of the handler, which net/http sends too
			}
			t.Fatalf("response %q is invalid: %v, want a valid one", heard, err)
		}
		came, err := io.ReadAll(res.Body)
		if rest, _ := io.ReadAll(b); len(rest) > 0 {
			t.Fatalf("response %q is followed by %q, want nothing", heard, rest)
		}
		if err == nil && string(came) != body[:len(came)] || len(came) > wrote {
			t.Fatalf("body = %q, want a prefix of %q", came, body)
		}
		for got := range res.Header {
			switch got {
			case "Date", "Content-Type", "Content-Length", "Connection", http.CanonicalHeaderKey(name):
			default:
				t.Fatalf("response %q has the header %q, want only headers of the handler", heard, got)
			}
		}
	})
}
