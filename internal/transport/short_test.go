package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portico.dev/internal/pki"
)

// script is a backend over HTTP/1.1 that writes by hand what a path says, and counts connections. "/warm" is answered
// well on every connection.
type script struct {
	address string
	conns   atomic.Int64
	asked   sync.Map // path: the head that asked for it
}

// scripted answers paths with bytes. An answer that ends with closing ends the connection.
func (w *world) scripted(answers map[string]string) *script {
	s := &script{}
	s.address = w.raw("http/1.1", func(c *tls.Conn) {
		s.conns.Add(1)
		in := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			s.asked.Store(r.URL.Path, r)
			answer, close := strings.CutSuffix(answers[r.URL.Path], closing)
			if answer == "" {
				answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwarm"
			}
			if _, err := io.WriteString(c, answer); err != nil || close {
				return
			}
		}
	})
	return s
}

const closing = "\x00close"

// ask sends one short request and reads the answer.
func ask(t *testing.T, b *Backend, method, path string) (*http.Response, string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://ignored"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := b.RoundTripShort(r)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	return resp, string(body), err
}

func shortOf(b *Backend) *short { return (*b.members.Load())[0].short }

func (s *short) resting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.idle)
}

// warm waits until the endpoint has an idle connection of the short lane that was used.
func warm(t *testing.T, b *Backend) {
	t.Helper()
	eventually(t, 30*time.Second, "a connection of the short lane", func() bool {
		if _, _, err := ask(t, b, http.MethodGet, "/warm"); err != nil {
			t.Fatal(err)
		}
		return shortOf(b).resting() > 0 && shortOf(b).proven.Load()
	})
}

func TestShortAnswers(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for name, c := range map[string]struct {
		method, answer string
		status         int
		body           string
		length         int64
		trailer        string
		again          bool // the connection carries the next request
	}{
		"known length":                {answer: ok + "Content-Length: 5\r\n\r\nhello", status: 200, body: "hello", length: 5, again: true},
		"known length, said twice":    {answer: ok + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", status: 200, body: "hello", length: 5, again: true},
		"nothing":                     {answer: ok + "Content-Length: 0\r\n\r\n", status: 200, again: true},
		"lines that end with LF":      {answer: "HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", status: 200, body: "hello", length: 5, again: true},
		"no reason":                   {answer: "HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello", status: 200, body: "hello", length: 5, again: true},
		"chunks":                      {answer: ok + "Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", status: 200, body: "hello", length: -1, again: true},
		"no chunk":                    {answer: ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", status: 200, length: -1, again: true},
		"chunks and trailers":         {answer: ok + "Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n", status: 200, body: "hello", length: -1, trailer: "7", again: true},
		"trailers not announced":      {answer: ok + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx-sum: 7\r\n\r\n", status: 200, body: "hello", length: -1, trailer: "7", again: true},
		"a length and a coding":       {answer: ok + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", status: 200, body: "hello", length: -1},
		"until the end":               {answer: ok + "\r\nhello" + closing, status: 200, body: "hello", length: -1},
		"HTTP/1.0":                    {answer: "HTTP/1.0 200 OK\r\n\r\nhello" + closing, status: 200, body: "hello", length: -1},
		"HTTP/1.0 with a coding":      {answer: "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello" + closing, status: 200, body: "hello", length: -1},
		"said to close":               {answer: ok + "Connection: x, Close\r\nContent-Length: 5\r\n\r\nhello", status: 200, body: "hello", length: 5},
		"HEAD":                        {method: http.MethodHead, answer: ok + "Content-Length: 5\r\n\r\n", status: 200, length: 5, again: true},
		"HEAD of chunks":              {method: http.MethodHead, answer: ok + "Transfer-Encoding: chunked\r\n\r\n", status: 200, length: -1, again: true},
		"no content":                  {answer: "HTTP/1.1 204 No Content\r\n\r\n", status: 204, again: true},
		"not modified, with a length": {answer: "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", status: 304, again: true},
		"early hints first":           {answer: "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + ok + "Content-Length: 2\r\n\r\nok", status: 200, body: "ok", length: 2, again: true},
		"100 first":                   {answer: "HTTP/1.1 100 Continue\r\n\r\n" + ok + "Content-Length: 2\r\n\r\nok", status: 200, body: "ok", length: 2, again: true},
		"an error":                    {answer: "HTTP/1.1 503 Later\r\nContent-Length: 2\r\n\r\nno", status: 503, body: "no", length: 2, again: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.scripted(map[string]string{"/case": c.answer})
			b := w.backend(w.set(func(o *Options) { o.MaxShortConns = 1 }), s.address)
			warm(t, b)
			before := s.conns.Load()
			method := c.method
			if method == "" {
				method = http.MethodGet
			}
			resp, body, err := ask(t, b, method, "/case")
			if err != nil || resp.StatusCode != c.status || body != c.body || resp.ContentLength != c.length {
				t.Fatalf("%+v, %q, %v", resp, body, err)
			}
			if got := resp.Trailer.Get("X-Sum"); got != c.trailer {
				t.Errorf("trailer %q", got)
			}
			if resp.Header["Transfer-Encoding"] != nil || resp.Header["Link"] != nil {
				t.Errorf("header %v", resp.Header)
			}
			if again := shortOf(b).resting() == 1; again != c.again {
				t.Errorf("used again: %v", again)
			}
			if c.again && s.conns.Load() != before {
				t.Errorf("%d connections, were %d", s.conns.Load(), before)
			}
			if _, body, err := ask(t, b, http.MethodGet, "/warm"); body != "warm" {
				t.Errorf("afterwards: %q, %v", body, err)
			}
		})
	}
}

// What a hostile backend says is never an answer, or never looks complete, and never becomes the answer of another
// request (A28).
func TestA28ShortLies(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	const chunked = ok + "Transfer-Encoding: chunked\r\n\r\n"
	head := map[string]string{
		"not HTTP":                  "SSH-2.0-OpenSSH\r\n\r\n",
		"another version":           "HTTP/2.0 200 OK\r\n\r\n",
		"status that is no number":  "HTTP/1.1 abc OK\r\n\r\n",
		"status of four digits":     "HTTP/1.1 2000 OK\r\n\r\n",
		"status below 100":          "HTTP/1.1 099 OK\r\n\r\n",
		"two lengths":               ok + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
		"length with a sign":        ok + "Content-Length: +5\r\n\r\nhello",
		"negative length":           ok + "Content-Length: -5\r\n\r\nhello",
		"length that is a list":     ok + "Content-Length: 5, 5\r\n\r\nhello",
		"another coding":            ok + "Transfer-Encoding: gzip, chunked\r\n\r\n",
		"two codings":               ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
		"folded header":             ok + "X: a\r\n b\r\nContent-Length: 0\r\n\r\n",
		"blank before the colon":    ok + "Content-Length : 5\r\n\r\nhello",
		"header without a name":     ok + ": x\r\n\r\n",
		"header without a colon":    ok + "nonsense\r\n\r\n",
		"CR in a value":             ok + "X: a\rSet-Cookie: b\r\nContent-Length: 0\r\n\r\n",
		"NUL in a value":            ok + "X: a\x00b\r\nContent-Length: 0\r\n\r\n",
		"endless header":            ok + "X: " + strings.Repeat("x", 2<<20) + "\r\n\r\n",
		"endless headers":           ok + strings.Repeat("X: y\r\n", 60_000) + "\r\n",
		"endless interim responses": strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 1000),
		"protocols switched":        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
	}
	body := map[string]string{
		"ends too early":               ok + "Content-Length: 50\r\n\r\nhello" + closing,
		"chunks that end too early":    chunked + "5\r\nhel" + closing,
		"no last chunk":                chunked + "5\r\nhello\r\n" + closing,
		"no end of the trailers":       chunked + "0\r\nX: y\r\n" + closing,
		"chunk that is longer":         chunked + "3\r\nhello\r\n0\r\n\r\n",
		"chunk size that is no number": chunked + "zz\r\nhello\r\n0\r\n\r\n",
		"chunk size beyond any":        chunked + "ffffffffffffffffff\r\nhello\r\n0\r\n\r\n",
		"trailer that frames":          chunked + "0\r\nContent-Length: 7\r\n\r\n",
		"trailer that splits":          chunked + "0\r\nX: a\rb\r\n\r\n",
		"endless trailers":             chunked + "0\r\n" + strings.Repeat("X: y\r\n", 60_000) + "\r\n",
	}
	w := newWorld(t)
	answers := map[string]string{}
	for name, answer := range head {
		answers["/"+strings.ReplaceAll(name, " ", "-")] = answer + closing
	}
	for name, answer := range body {
		answers["/"+strings.ReplaceAll(name, " ", "-")] = answer
	}
	for _, name := range slices.Sorted(maps.Keys(answers)) {
		t.Run(name[1:], func(t *testing.T) {
			s := w.scripted(answers)
			b := w.backend(w.set(func(o *Options) { o.MaxHeaderBytes = 64 << 10 }), s.address)
			warm(t, b)
			resp, _, err := ask(t, b, http.MethodGet, name)
			if err == nil {
				t.Fatalf("it passed for an answer: %+v", resp)
			}
			var failed *Error
			if _, inHead := head[strings.ReplaceAll(name[1:], "-", " ")]; inHead && (!errors.As(err, &failed) || !failed.Protocol || !failed.Sent) {
				t.Errorf("%#v", err)
			}
			if resp, body, err := ask(t, b, http.MethodGet, "/warm"); err != nil || body != "warm" || resp.StatusCode != 200 {
				t.Errorf("afterwards: %q, %v", body, err)
			}
		})
	}
}

// Bytes behind an answer, at once or while the connection is idle, are nobody's answer.
func TestShortUnsolicitedAnswer(t *testing.T) {
	const forged = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
	answer := "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwarm"
	for name, split := range map[string]bool{"at once": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			wrote := make(chan struct{}, 100)
			address := w.raw("http/1.1", func(c *tls.Conn) {
				in := bufio.NewReader(c)
				for {
					if _, err := http.ReadRequest(in); err != nil {
						return
					}
					if split {
						_, _ = io.WriteString(c, answer)
						_, _ = io.WriteString(c, forged)
					} else {
						_, _ = io.WriteString(c, answer+forged)
					}
					wrote <- struct{}{}
				}
			})
			b := w.backend(w.set(), address)
			// The library looks at its connections in a goroutine of its own, and may come too late: what it answers is
			// not compared.
			checked := 0
			for range 200 {
				c := shortOf(b).take()
				if c == nil {
					if _, _, err := ask(t, b, http.MethodGet, "/x"); err == nil {
						<-wrote
					}
					continue
				}
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://x/x", nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Host = "x"
				resp, err := c.roundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				if body, err := io.ReadAll(resp.Body); string(body) != "warm" {
					t.Fatalf("got %q, %v", body, err)
				}
				checked++
				<-wrote
			}
			if checked == 0 {
				t.Error("nothing went by the short lane")
			}
		})
	}
}

func TestShortConnectionsThatTheServerClosed(t *testing.T) {
	w := newWorld(t)
	s := w.scripted(map[string]string{"/bye": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + closing})
	b := w.backend(w.set(), s.address)
	for range 30 {
		warm(t, b)
		if _, body, err := ask(t, b, http.MethodGet, "/bye"); body != "ok" {
			t.Fatal(err)
		}
	}
	if state := b.Report().Endpoints[0].State; state != "well" {
		t.Errorf("a server that closes idle connections is %s", state)
	}
}

func TestShortIsForReadsAlone(t *testing.T) {
	w := newWorld(t)
	s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(rw, r.Proto) }))
	b := w.backend(w.set(), s.address)
	eventually(t, 30*time.Second, "a read over HTTP/1.1", func() bool {
		_, body, err := ask(t, b, http.MethodGet, "/")
		return err == nil && body == "HTTP/1.1"
	})
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if _, body, err := ask(t, b, method, "/"); err != nil || body != "HTTP/2.0" {
			t.Errorf("%s: %s, %v", method, body, err)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://x/", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := b.RoundTripShort(r)
	if err != nil || resp.ProtoMajor != 2 {
		t.Fatalf("with a body: %+v, %v", resp, err)
	}
	_ = resp.Body.Close()
	if body, err := get(t, b); err != nil || body != "HTTP/2.0" {
		t.Errorf("a stream: %s, %v", body, err)
	}
}

func TestShortIsLeftWhereHTTP1IsNotSpoken(t *testing.T) {
	w := newWorld(t)
	t.Run("refused in the handshake", func(t *testing.T) {
		b := w.backend(w.set(), w.raw("h2", func(c *tls.Conn) {
			if f, ok := newFrames(c); ok {
				_ = f.WriteSettings()
				f.each(func(stream uint32) bool { f.header(stream, true, ":status", "200"); return true })
			}
		}))
		eventually(t, 30*time.Second, "it is left", func() bool {
			if _, _, err := ask(t, b, http.MethodGet, "/"); err != nil {
				t.Fatal(err)
			}
			s := shortOf(b)
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.refused
		})
	})
	t.Run("agreed to and not spoken", func(t *testing.T) {
		config := pki.ServerConfig(w.serving())
		config.NextProtos = []string{"h2", "http/1.1"}
		address := w.tls(config, func(c *tls.Conn) {
			if c.ConnectionState().NegotiatedProtocol != "h2" {
				_, _ = c.Read(make([]byte, 4096))
				_, _ = io.WriteString(c, "SSH-2.0\r\n\r\n")
				return
			}
			if f, ok := newFrames(c); ok {
				_ = f.WriteSettings()
				f.each(func(stream uint32) bool { f.header(stream, true, ":status", "200"); return true })
			}
		})
		b := w.backend(w.set(), address)
		eventually(t, 30*time.Second, "it is left", func() bool {
			if _, _, err := ask(t, b, http.MethodGet, "/"); err != nil {
				t.Fatal(err)
			}
			s := shortOf(b)
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.refused
		})
	})
}

// tls is a TLS server whose connections are handled by hand.
func (w *world) tls(config *tls.Config, handle func(*tls.Conn)) string {
	return w.tcp(func(c net.Conn) {
		if tc := tls.Server(c, config); tc.Handshake() == nil {
			handle(tc)
		}
	})
}

func TestShortCallerLeaves(t *testing.T) {
	w := newWorld(t)
	gone := make(chan string, 2)
	s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/warm":
			return
		case "/body":
			_, _ = io.WriteString(rw, "begun")
			_ = http.NewResponseController(rw).Flush()
		}
		<-r.Context().Done()
		gone <- r.URL.Path + " " + r.Proto
	}))
	b := w.backend(w.set(), s.address)
	for _, path := range []string{"/head", "/body"} {
		warm(t, b)
		ctx, leave := context.WithCancelCause(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://x"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		why := errors.New("the caller left")
		if path == "/head" {
			time.AfterFunc(50*time.Millisecond, func() { leave(why) })
		}
		resp, err := b.RoundTripShort(r)
		if path == "/head" {
			if !errors.Is(err, why) {
				t.Errorf("%v", err)
			}
		} else {
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(50*time.Millisecond, func() { leave(why) })
			if _, err := io.ReadAll(resp.Body); err == nil {
				t.Error("the body looks complete")
			}
			_ = resp.Body.Close()
		}
		leave(nil)
		if got := <-gone; got != path+" HTTP/1.1" {
			t.Errorf("gone: %s", got)
		}
	}
	if state := b.Report().Endpoints[0].State; state != "well" {
		t.Errorf("the endpoint is %s because callers left", state)
	}
}

// A body that nobody reads to its end costs the connection, and Close does not wait for what has not come.
func TestShortBodyIsGivenUp(t *testing.T) {
	w := newWorld(t)
	s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/endless" {
			for r.Context().Err() == nil {
				if _, err := io.WriteString(rw, strings.Repeat("x", 1<<16)); err != nil {
					return
				}
			}
		}
	}))
	b := w.backend(w.set(), s.address)
	warm(t, b)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://x/endless", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := b.RoundTripShort(r)
	if err != nil || resp.ProtoMajor != 1 {
		t.Fatal(resp, err)
	}
	reading := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.ReadFull(resp.Body, make([]byte, 1<<18))
		close(reading)
		_, _ = io.Copy(io.Discard, resp.Body)
	})
	<-reading
	_ = resp.Body.Close()
	wg.Wait()
	if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || err == nil || err == io.EOF {
		t.Errorf("%d, %v", n, err)
	}
}

func TestShortHeaderTimeout(t *testing.T) {
	w := newWorld(t)
	hold := make(chan struct{})
	s := w.serve(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			<-hold
		}
	}))
	defer close(hold)
	b := w.backend(w.set(func(o *Options) { o.HeaderTimeout = time.Second }), s.address)
	warm(t, b)
	if _, _, err := ask(t, b, http.MethodGet, "/hold"); !errors.Is(err, ErrHeaderTimeout) {
		t.Errorf("%v", err)
	}
}

// An endpoint that goes silent is found by its other connection.
func TestShortConnectionThatFallsSilent(t *testing.T) {
	w := newWorld(t)
	s := w.serve(text("ok"))
	l := w.link(s.address)
	b := w.backend(w.set(), l.address)
	warm(t, b)
	eventually(t, 30*time.Second, "a companion", func() bool { there, _ := shortOf(b).companion(); return there })
	l.cut.Store(true)
	start := time.Now()
	_, _, err := ask(t, b, http.MethodGet, "/")
	if !unheard(err) {
		t.Errorf("%v", err)
	}
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("it took %s", took)
	}
	l.cut.Store(false)
	eventually(t, 30*time.Second, "it answers again", func() bool { _, _, err := ask(t, b, http.MethodGet, "/"); return err == nil })
}

func TestShortClientCertificateIsReplaced(t *testing.T) {
	w := newWorld(t)
	s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, r.TLS.PeerCertificates[0].Subject.CommonName+" "+r.Proto)
	}))
	b := w.backend(w.set(), s.address)
	warm(t, b)
	cert, key, err := w.ca.Issue(pki.Leaf{CommonName: "renewed", Client: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.front.Set(cert, key); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "the short lane has the new one", func() bool {
		_, who, err := ask(t, b, http.MethodGet, "/")
		if err != nil || !strings.HasPrefix(who, "renewed") {
			t.Fatal(who, err)
		}
		return who == "renewed HTTP/1.1"
	})
	eventually(t, 30*time.Second, "the old ones are closed", func() bool { return s.openConns() <= 2+shortOf(b).count() })
}

func TestShortIsBounded(t *testing.T) {
	w := newWorld(t)
	var now, most atomic.Int64
	s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 {
			for n := now.Add(1); ; {
				if old := most.Load(); n <= old || most.CompareAndSwap(old, n) {
					break
				}
			}
			defer now.Add(-1)
		}
		_, _ = io.WriteString(rw, "ok")
	}))
	b := w.backend(w.set(func(o *Options) { o.MaxShortConns = 3 }), s.address)
	warm(t, b)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 50 {
				if _, body, err := ask(t, b, http.MethodGet, "/"); body != "ok" {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if most.Load() > 3 || shortOf(b).count() > 3 {
		t.Errorf("%d at once, %d connections", most.Load(), shortOf(b).count())
	}
}

func TestShortEndsWithItsEndpoint(t *testing.T) {
	w := newWorld(t)
	hold, held := make(chan struct{}), make(chan struct{})
	s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			close(held)
			<-hold
		}
		_, _ = io.WriteString(rw, "ok")
	}))
	other := w.serve(text("other"))
	set := w.set()
	b := w.backend(set, s.address)
	warm(t, b)
	lane := shortOf(b)
	var wg sync.WaitGroup
	wg.Go(func() {
		if resp, body, err := ask(t, b, http.MethodGet, "/hold"); body != "ok" || resp.ProtoMajor != 1 {
			t.Errorf("in flight: %q, %v", body, err)
		}
	})
	<-held
	w.backend(set, other.address)
	if lane.take() != nil {
		t.Error("a connection of an endpoint that left")
	}
	close(hold)
	wg.Wait()
	eventually(t, 30*time.Second, "it is over", lane.quiet)
}

func TestShortSetCloses(t *testing.T) {
	w := newWorld(t)
	hold, held := make(chan struct{}), make(chan struct{})
	s := w.serve(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			close(held)
			<-hold
		}
	}))
	defer close(hold)
	set := w.set()
	b := w.backend(set, s.address)
	warm(t, b)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, _, err := ask(t, b, http.MethodGet, "/hold"); err == nil {
			t.Error("answered")
		}
	})
	<-held
	set.Close()
	wg.Wait()
}
