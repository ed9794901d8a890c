package http1

import (
	"io"
	"net/http"
	"regexp"
	"testing"
)

var statuses = regexp.MustCompile(`HTTP/1\.1 [0-9]{3} `)

// A client may send data for the tunnel directly after CONNECT. If the connection stayed open after a refusal, these bytes would be
// parsed as the next request. net/http's server keeps it open.
func TestCONNECTIsLastRequestOfConnection(t *testing.T) {
	for name, raw := range map[string]string{
		"alone":           "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n",
		"with a length":   "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\nContent-Length: 3\r\n\r\nabc",
		"with a coding":   "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"to be continued": "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\nConnection: keep-alive\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			a := implementations[1].open(t, rules{tls: true}, probed(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusMethodNotAllowed)
				say(w, r.Method)
			}))
			conn := a.dial(t)
			if _, err := io.WriteString(conn, raw+probe); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(conn)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(statuses.FindAll(got, -1)); n != 1 {
				t.Errorf("%d responses, want 1:\n%s", n, got)
			}
		})
	}
}
