package programs

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// ProxyTo returns the URL of an HTTP proxy whose connections lead to the first of these addresses that accepts them, whatever host
// clients request.
func ProxyTo(t testing.TB, addresses ...string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to, err := dialFirst(r.Context(), addresses)
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

func dialFirst(ctx context.Context, addresses []string) (conn net.Conn, err error) {
	for _, address := range addresses {
		if conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", address); err == nil {
			return conn, nil
		}
	}
	return nil, err
}
