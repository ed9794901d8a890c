package programs

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// ProxyTo returns the URL of an HTTP proxy whose connections lead to an address, whatever host clients request.
func ProxyTo(t testing.TB, address string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", address)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer to.Close()
		from, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer from.Close()
		fmt.Fprint(from, "HTTP/1.1 200 OK\r\n\r\n")
		go func() {
			_, _ = io.Copy(to, from) // either end may end it
			_ = to.Close()
		}()
		_, _ = io.Copy(from, to)
	}))
	t.Cleanup(s.Close)
	return s.URL
}
