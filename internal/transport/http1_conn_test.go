package transport

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/pki"
)

// scripted is a backend over HTTP/1.1 that writes the given bytes for a path. "/well" has a valid response on every connection.
type scripted struct {
	address string
	bytes   bool     // each byte in a separate TLS record
	asked   sync.Map // path: *atomic.Int64
}

func (w *testEnv) scripted(answers map[string]string) *scripted {
	s := &scripted{}
	s.address = w.raw("http/1.1", func(c *tls.Conn) {
		in := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			s.count(r.URL.Path).Add(1)
			answer, end := strings.CutSuffix(answers[r.URL.Path], closing)
			if answer == "" {
				answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwell"
			}
			if s.write(c, answer) != nil || end {
				return
			}
		}
	})
	return s
}

func (s *scripted) count(path string) *atomic.Int64 {
	n, _ := s.asked.LoadOrStore(path, new(atomic.Int64))
	return n.(*atomic.Int64)
}

func (s *scripted) write(c net.Conn, answer string) error {
	size := len(answer)
	if s.bytes && size < 1<<12 {
		size = 1
	}
	for part := range slices.Chunk([]byte(answer), size) {
		if _, err := c.Write(part); err != nil {
			return err
		}
	}
	return nil
}

const closing = "\x00close"

// ask sends one request and reads the response.
func ask(t *testing.T, b *Backend, method, path string) (*http.Response, string, error) {
	t.Helper()
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader("posted")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "https://ignored"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := b.RoundTrip(r)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	return resp, string(text), err
}

// answersWell checks that the backend responds, and leaves a used connection in the pool.
func answersWell(t *testing.T, b *Backend) {
	t.Helper()
	if resp, body, err := ask(t, b, http.MethodGet, "/well"); err != nil || body != "well" || resp.StatusCode != 200 {
		t.Fatalf("GET /well = %q with the error %v, want 200 well", body, err)
	}
}

func pathOf(name string) string { return "/" + strings.ReplaceAll(name, " ", "-") }

func TestHTTP1ResponsesPassUnchanged(t *testing.T) {
	w := newTestEnv(t)
	answers := map[string]string{}
	for name, a := range fine {
		answers[pathOf(name)] = a.text
		if a.closes {
			answers[pathOf(name)] += closing
		}
	}
	for _, bytes := range []bool{false, true} {
		s := w.scripted(answers)
		s.bytes = bytes
		b := w.backend(w.set(), s.address)
		for _, name := range slices.Sorted(maps.Keys(fine)) {
			a := fine[name]
			method, status := a.method, a.status
			if method == "" {
				method = http.MethodGet
			}
			if status == 0 {
				status = http.StatusOK
			}
			answersWell(t, b)
			resp, body, err := ask(t, b, method, pathOf(name))
			if err != nil || resp.StatusCode != status || body != a.body || resp.Trailer.Get("X-Sum") != a.trailer {
				t.Errorf("%s of %s = %+v with the body %q and the error %v, want %d with %q and the trailer %q", method, name, resp, body, err, status, a.body, a.trailer)
			}
		}
		answersWell(t, b)
	}
}

// Limits of net/http, and responses that end too early.
var (
	endlessHeads = map[string]string{
		"endless header":            okHead + "X: " + strings.Repeat("x", 10<<20) + "\r\n\r\n",
		"endless name":              okHead + strings.Repeat("x", 2<<20) + ": y\r\n\r\n",
		"endless headers":           okHead + strings.Repeat("X: y\r\n", 60_000) + "\r\n",
		"endless interim responses": strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 5000),
	}
	brokenBodies = map[string]string{
		"ends too early":            okHead + "Content-Length: 50\r\n\r\nhello" + closing,
		"chunks that end too early": okChunk + "5\r\nhel" + closing,
		"no last chunk":             okChunk + "5\r\nhello\r\n" + closing,
		"no end of the trailers":    okChunk + "0\r\nX: y\r\n" + closing,
		"endless trailers":          okChunk + "0\r\n" + strings.Repeat("X: y\r\n", 60_000) + "\r\n",
	}
)

// A malformed HTTP/1.1 response of a hostile backend is never forwarded as a complete response, never becomes the response of another
// request, and is not requested a second time (A28).
func TestA28MalformedHTTP1ResponsesAreNotForwarded(t *testing.T) {
	t.Parallel()
	enginetest.NotOnLibraryBackend(t, "malformed responses over HTTP/1.1")
	w := newTestEnv(t)
	answers := map[string]string{}
	for name, lie := range headLies {
		answers[pathOf(name)] = lie.text
	}
	for name, lie := range bodyLies {
		answers[pathOf(name)] = lie.text
	}
	for name, text := range endlessHeads {
		answers[pathOf(name)] = text
	}
	for name, text := range brokenBodies {
		answers[pathOf(name)] = text
	}
	for _, bytes := range []bool{false, true} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			s := w.scripted(answers)
			s.bytes = bytes
			b := w.backend(w.set(func(o *Options) { o.MaxHeaderBytes = 64 << 10 }), s.address)
			for i, name := range slices.Sorted(maps.Keys(answers)) {
				if i%2 == 0 {
					answersWell(t, b) // the next request uses an existing connection, for which net/http repeats requests
				}
				lie(t, b, s, method, name[1:])
			}
			answersWell(t, b)
		}
	}
}

func lie(t *testing.T, b *Backend, s *scripted, method, name string) {
	t.Helper()
	before := s.count("/" + name).Load()
	resp, body, err := ask(t, b, method, "/"+name)
	name = strings.ReplaceAll(name, "-", " ")
	if err == nil {
		t.Errorf("%s of %s = %+v with the body %q, want an error", method, name, resp, body)
		return
	}
	_, inBody := bodyLies[name]
	_, tooEarly := brokenBodies[name]
	var failed *Error
	switch {
	case tooEarly:
	case inBody:
		if f := classify(t.Context(), err); !f.protocol || f.lost || f.connection {
			t.Errorf("%s of %s error = %v, classified %+v, want a protocol error", method, name, err, f)
		}
	case !errors.As(err, &failed) || !failed.Protocol || !failed.Sent:
		t.Errorf("%s of %s error = %#v (%v), want a protocol error, sent", method, name, err, err)
	}
	if n := s.count(pathOf(name)).Load() - before; n != 1 {
		t.Errorf("%s of %s reached the backend %d times, want 1", method, name, n)
	}
}

// The error names the violation where net/http does not hide it.
func TestA28MalformedResponsesAreReported(t *testing.T) {
	enginetest.NotOnLibraryBackend(t, "malformed responses over HTTP/1.1")
	w := newTestEnv(t)
	s := w.scripted(map[string]string{"/folded": headLies["folded header"].text, "/size": bodyLies["second chunk is wrong"].text})
	b := w.backend(w.set(), s.address)
	for path, wrong := range map[string]error{"/folded": errFolded, "/size": errChunkSize} {
		if _, _, err := ask(t, b, http.MethodGet, path); !errors.Is(err, wrong) {
			t.Errorf("GET %s error = %v, want %v", path, err, wrong)
		}
	}
}

const forged = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"

// Bytes after a response, in any number of pieces, never answer another request, and fail no request (A28).
func TestA28UnsolicitedResponseBytesAreDropped(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	enginetest.NotOnLibraryBackend(t, "responses over HTTP/1.1 that nobody asked for")
	const answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwell"
	var said bytes.Buffer
	log.SetOutput(&said)
	defer log.SetOutput(os.Stderr)
	for name, parts := range map[string][]string{
		"with it":          {answer + forged},
		"in a record each": {answer, forged},
		"in pieces":        {answer, forged[:20], forged[20:]},
		"one byte":         {answer + "\n"},
		"408 and the end":  {answer, "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv(t)
			wrote := make(chan struct{}, 1)
			b := w.backend(w.set(), w.raw("http/1.1", func(c *tls.Conn) {
				in := bufio.NewReader(c)
				for {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					for _, part := range parts {
						_, _ = io.WriteString(c, part)
					}
					wrote <- struct{}{}
				}
			}))
			for i := range 200 {
				method := []string{http.MethodPost, http.MethodGet}[i%2]
				if _, body, err := ask(t, b, method, "/"); err != nil || body != "well" {
					t.Fatalf("request %d, %s = %q with the error %v, want well", i, method, body, err)
				}
				<-wrote // bytes that arrive after the next request cannot be distinguished from its response
			}
		})
	}
	if said.Len() > 0 {
		t.Errorf("output on stderr = %s, want none", said.String())
	}
}

// held is a connection that delays the last bytes of each write.
type held struct {
	net.Conn
	hold bool
	rest []byte
}

func (c *held) Write(p []byte) (int, error) {
	n := len(p)
	if c.hold {
		p, c.rest = p[:len(p)-10], bytes.Clone(p[len(p)-10:])
	}
	_, err := c.Conn.Write(p)
	return n, err
}

// The connection waits for the rest of a partial TLS record that arrived before a request: the rest would complete a response.
func TestA28PartialResponseBeforeRequestIsDetected(t *testing.T) {
	enginetest.NotOnLibraryBackend(t, "responses over HTTP/1.1 that nobody asked for")
	w := newTestEnv(t)
	config := pki.ServerConfig(w.serving())
	config.NextProtos = []string{"http/1.1"}
	begun := make(chan struct{}, 10)
	address := w.tcp(func(raw net.Conn) {
		h := &held{Conn: raw}
		c := tls.Server(h, config)
		in := bufio.NewReader(c)
		for {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwell")
			h.hold = true
			_, _ = io.WriteString(c, forged)
			h.hold = false
			begun <- struct{}{}
			<-time.After(20 * time.Millisecond) // the next request arrives in this time; if it is later, the test has no effect
			_, _ = raw.Write(h.rest)
		}
	})
	b := w.backend(w.set(), address)
	for range 10 {
		answersWell(t, b)
		<-begun
	}
}

func TestA28ResponseBeforeAnyRequestIsRejected(t *testing.T) {
	enginetest.NotOnLibraryBackend(t, "responses over HTTP/1.1 that nobody asked for")
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		w := newTestEnv(t)
		wrote := make(chan struct{}, 1)
		b := w.backend(w.set(), w.raw("http/1.1", func(c *tls.Conn) {
			_, _ = io.WriteString(c, forged)
			wrote <- struct{}{}
			_, _ = io.Copy(io.Discard, c)
		}))
		l := (*b.candidates.Load())[0].requests
		tc, raw, err := l.dialer.connect(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		<-wrote
		if err := l.park(tc, raw); err != nil {
			t.Fatal(err)
		}
		l.mu.Lock()
		l.parked.start = time.Now().Add(time.Hour) // however long it takes to be taken
		l.mu.Unlock()
		_, body, err := ask(t, b, method, "/")
		var failed *Error
		if !errors.As(err, &failed) || !failed.Protocol || !errors.Is(err, errUnrequested) {
			t.Errorf("%s on a connection with an unsolicited response = %q with the error %v, want errUnrequested", method, body, err)
		}
	}
}

// A request with an upgrade switches to another protocol, which is not inspected.
func TestUpgradeSwitchesProtocolWithoutTLS(t *testing.T) {
	w := newTestEnv(t)
	b := w.backend(w.set(), w.raw("http/1.1", func(c *tls.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n\x00\x01anything\n")
		}
	}))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://x/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Upgrade", "echo")
	r.Header.Set("Connection", "Upgrade")
	resp, err := b.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("GET with an upgrade = %v with the error %v, want 101", resp, err)
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if string(text) != "\x00\x01anything\n" {
		t.Errorf("bytes after the upgrade = %q with the error %v, want the backend's bytes unchanged", text, err)
	}
}

// A response before the end of the request, and a body that looks like a request, are not confused with other messages.
func TestEarlyResponseIsMatchedToItsRequest(t *testing.T) {
	w := newTestEnv(t)
	b := w.backend(w.set(), w.raw("http/1.1", func(c *tls.Conn) {
		in := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if _, err = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwell"); err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
		}
	}))
	for i := range 20 {
		body, more := io.Pipe()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://x/", body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := b.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(more, "HEAD / HTTP/1.1\r\n\r\n"); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
		_ = more.Close()
		if text, err := io.ReadAll(resp.Body); string(text) != "well" {
			t.Errorf("response %d to an unfinished request = %q with the error %v, want well", i, text, err)
		}
		_ = resp.Body.Close()
		if _, text, err := ask(t, b, http.MethodGet, "/"); err != nil || text != "well" {
			t.Errorf("GET after response %d = %q with the error %v, want well", i, text, err)
		}
	}
}
