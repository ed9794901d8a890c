package http1

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Concurrent clients, some of which disconnect, with handlers whose duration equals the delay of the disconnect check. An error in its
// start or stop would mix up or lose responses.
func TestConcurrentClientsGetTheirOwnResponses(t *testing.T) {
	var served atomic.Int64
	s := start(t, Config{DisconnectCheckDelay: time.Millisecond, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := served.Add(1)
		if n%3 == 0 { // The response begins before the body is read.
			_, _ = io.WriteString(w, r.URL.Path)
			_ = http.NewResponseController(w).Flush()
		} else {
			defer func() { _, _ = io.WriteString(w, r.URL.Path) }()
		}
		pause := func() { <-time.After(time.Duration(n%5) * time.Millisecond) }
		if n%2 == 0 {
			pause()
		}
		if n%7 != 0 {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		if n%11 == 0 {
			pause()
		}
	})})
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.roots, ServerName: "example.com"}, MaxIdleConnsPerHost: 20}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr, Timeout: 30 * time.Second}
	ask := func(ctx context.Context, i int) (string, error) {
		path := fmt.Sprint("/", i)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.address+path, nil)
		if i%2 == 1 {
			var body io.Reader = strings.NewReader(strings.Repeat("x", 1<<(i%16)))
			if i%4 == 1 {
				body = io.NopCloser(body) // of unknown length
			}
			r, err = http.NewRequestWithContext(ctx, http.MethodPost, "https://"+s.address+path, body)
		}
		if err != nil {
			return "", err
		}
		res, err := client.Do(r)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		got, err := io.ReadAll(res.Body)
		return strings.TrimPrefix(string(got), path), err
	}
	var all sync.WaitGroup
	var next atomic.Int64
	for range 16 {
		all.Go(func() {
			for i := int(next.Add(1)); i <= 1000; i = int(next.Add(1)) {
				ctx, cancel := context.WithCancel(t.Context())
				leaves := i%9 == 0
				if leaves {
					time.AfterFunc(time.Duration(i%4)*time.Millisecond, cancel)
				}
				if other, err := ask(ctx, i); !leaves && (err != nil || other != "") {
					t.Errorf("request %d: response differs by %q, error %v, want its path", i, other, err)
				}
				cancel()
			}
		})
	}
	all.Wait()
	if err := s.Shutdown(soon(t)); err != nil {
		t.Error(err)
	}
}
