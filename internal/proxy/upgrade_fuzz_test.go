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

// answering is a connection to a backend that says something, whatever it is asked.
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

// What a backend says in answer to an upgrade is one answer and then the new protocol, byte for byte; an answer without end is given up.
func FuzzUpgradeAnswer(f *testing.F) {
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
			t.Fatalf("%d bytes were read for an answer", conn.read)
		}
		if err != nil {
			return
		}
		if resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%q: the answer is %d", says, resp.StatusCode)
		}
		if resp.StatusCode != http.StatusSwitchingProtocols {
			return
		}
		// What comes after the head is the tunnel's, from its first byte to its last.
		rest := bufio.NewReader(bytes.NewReader(says))
		for {
			want, err := http.ReadResponse(rest, out)
			if err != nil {
				return // its head ends in what comes after
			}
			if want.StatusCode == http.StatusSwitchingProtocols {
				break
			}
		}
		want, _ := io.ReadAll(rest)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(backend, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%q: the tunnel begins with %q, want %q: %v", says, got, want, err)
		}
	})
}
