package transport

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// scripted is a backend over HTTP/1.1 that writes by hand what a path says. "/well" is answered well on every connection.
func (w *world) scripted(answers map[string]string) string {
	return w.raw("http/1.1", func(c *tls.Conn) {
		in := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			answer, end := strings.CutSuffix(answers[r.URL.Path], closing)
			if answer == "" {
				answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwell"
			}
			if _, err := io.WriteString(c, answer); err != nil || end {
				return
			}
		}
	})
}

const closing = "\x00close"

// ask sends one request and reads the answer.
func ask(t *testing.T, b *Backend, method, path string) (*http.Response, string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://ignored"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := b.RoundTrip(r)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	return resp, string(body), err
}

// What a hostile backend of HTTP/1.1 says, which the library reads, is never an answer, or never looks complete, and never becomes the answer of another
// request (A28).
func TestA28LiesOverHTTP1(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	const chunked = ok + "Transfer-Encoding: chunked\r\n\r\n"
	head := map[string]string{
		"not HTTP":                  "SSH-2.0-OpenSSH\r\n\r\n",
		"status that is no number":  "HTTP/1.1 abc OK\r\n\r\n",
		"status of four digits":     "HTTP/1.1 2000 OK\r\n\r\n",
		"two lengths":               ok + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
		"length with a sign":        ok + "Content-Length: +5\r\n\r\nhello",
		"negative length":           ok + "Content-Length: -5\r\n\r\nhello",
		"length that is a list":     ok + "Content-Length: 5, 5\r\n\r\nhello",
		"another coding":            ok + "Transfer-Encoding: gzip, chunked\r\n\r\n",
		"two codings":               ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
		"header without a name":     ok + ": x\r\n\r\n",
		"header without a colon":    ok + "nonsense\r\n\r\n",
		"CR in a value":             ok + "X: a\rSet-Cookie: b\r\nContent-Length: 0\r\n\r\n",
		"NUL in a value":            ok + "X: a\x00b\r\nContent-Length: 0\r\n\r\n",
		"endless header":            ok + "X: " + strings.Repeat("x", 2<<20) + "\r\n\r\n",
		"endless headers":           ok + strings.Repeat("X: y\r\n", 60_000) + "\r\n",
		"endless interim responses": strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 1000),
	}
	body := map[string]string{
		"ends too early":               ok + "Content-Length: 50\r\n\r\nhello" + closing,
		"chunks that end too early":    chunked + "5\r\nhel" + closing,
		"no last chunk":                chunked + "5\r\nhello\r\n" + closing,
		"no end of the trailers":       chunked + "0\r\nX: y\r\n" + closing,
		"chunk that is longer":         chunked + "3\r\nhello\r\n0\r\n\r\n",
		"chunk size that is no number": chunked + "zz\r\nhello\r\n0\r\n\r\n",
		"chunk size beyond any":        chunked + "ffffffffffffffffff\r\nhello\r\n0\r\n\r\n",
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
			b := w.backend(w.set(func(o *Options) { o.MaxHeaderBytes = 64 << 10 }), s)
			resp, _, err := ask(t, b, http.MethodGet, name)
			if err == nil {
				t.Fatalf("it passed for an answer: %+v", resp)
			}
			var failed *Error
			if _, inHead := head[strings.ReplaceAll(name[1:], "-", " ")]; inHead && (!errors.As(err, &failed) || !failed.Sent) {
				t.Errorf("%#v", err)
			}
			if resp, body, err := ask(t, b, http.MethodGet, "/well"); err != nil || body != "well" || resp.StatusCode != 200 {
				t.Errorf("afterwards: %q, %v", body, err)
			}
		})
	}
}
