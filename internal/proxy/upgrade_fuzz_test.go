package proxy

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// answering is a connection to a backend that sends fixed bytes for any request.
type answering struct {
	net.Conn
	says io.Reader
	read int
}

// Read implements net.Conn.
func (c *answering) Read(p []byte) (int, error) {
	n, err := c.says.Read(p)
	c.read += n
	return n, err
}

// Write implements net.Conn.
func (c *answering) Write(p []byte) (int, error) { return len(p), nil }

// SetReadDeadline implements net.Conn.
func (c *answering) SetReadDeadline(time.Time) error { return nil }

// A backend's response to an upgrade is one response, followed by the new protocol, byte for byte. An endless response is
// aborted.
func FuzzUpgradeResponse(f *testing.F) {
	for _, says := range []string{
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x05hello",
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n",
		"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 101 Switching Protocols\r\n\r\nx",
		"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", "HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 101 Switching Protocols\r\n\r\n",
		"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\n\r\n", "HTTP/1.1 101\nUpgrade: websocket\n\nx", "SSH-2.0\r\n", "",
		strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 30),
	} {
		f.Add([]byte(says))
	}
	f.Fuzz(func(t *testing.T, says []byte) {
		out, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://backend.example/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		endless := io.MultiReader(bytes.NewReader(says), strings.NewReader(strings.Repeat("x", 2*maxUpgradeHeader)))
		conn := &answering{says: endless}
		backend, resp, err := sendUpgrade(conn, out)
		if conn.read > maxUpgradeHeader+len(says)+4096 {
			t.Fatalf("%d bytes were read for a response, want at most %d", conn.read, maxUpgradeHeader+len(says)+4096)
		}
		if err != nil {
			return
		}
		if resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%q: status = %d, want no interim status other than 101", says, resp.StatusCode)
		}
		if resp.StatusCode != http.StatusSwitchingProtocols {
			return
		}
		// The bytes after the head belong to the tunnel, from the first to the last.
		rest := bufio.NewReader(bytes.NewReader(says))
		for {
			want, err := http.ReadResponse(rest, out)
			if err != nil {
				return // the head ends in the bytes that follow
			}
			if want.StatusCode == http.StatusSwitchingProtocols {
				break
			}
		}
		want, _ := io.ReadAll(rest)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(backend, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%q: the tunnel begins with %q, error %v, want %q", says, got, err, want)
		}
	})
}
