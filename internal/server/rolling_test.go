package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// loadBalancer opens each connection to the next ready server.
type loadBalancer struct {
	mu      sync.Mutex // guards the fields below
	servers []*listening
	next    int
}

func (b *loadBalancer) add(l *listening) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.servers = append(b.servers, l)
}

func (b *loadBalancer) remove(l *listening) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.servers = slices.DeleteFunc(b.servers, func(o *listening) bool { return o == l })
}

// dial connects to a server and verifies its certificate with that server's authority.
func (b *loadBalancer) dial(h2 bool) func(ctx context.Context, _, _ string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		b.mu.Lock()
		b.next++
		l := b.servers[b.next%len(b.servers)]
		b.mu.Unlock()
		protocols := []string{"http/1.1"}
		if h2 {
			protocols = []string{"h2"}
		}
		pool := x509.NewCertPool()
		pool.AddCert(l.authority.Certificate)
		raw, err := l.connect(ctx)
		if err != nil {
			return nil, err
		}
		c := tls.Client(raw, &tls.Config{RootCAs: pool, NextProtos: protocols, ServerName: "127.0.0.1"})
		if err := c.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, raw.Close())
		}
		return c, nil
	}
}

// Servers are replaced one after the other while clients keep their connections, over both versions of HTTP. No request
// fails: neither a request on a connection that is closing, nor a write, which clients do not repeat.
func TestARollingRestartFailsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Each client must send a request within the delay to learn that its connection closes. A client that pauses longer would write to a
		// connection that is being closed.
		const rounds, delay, noticed, pause = 12, time.Second, 50 * time.Millisecond, 7 * time.Millisecond
		start := func() *listening {
			b := newBench("alice *")
			b.memory = true
			b.handler = func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }
			return b.listen(t, 5*time.Second, func(s *Server) { s.c.ShutdownDelay = delay })
		}
		balancer := &loadBalancer{}
		servers := []*listening{start(), start(), start()}
		for _, l := range servers {
			balancer.add(l)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var clients sync.WaitGroup
		var served, failed atomic.Int64
		for i := range 12 {
			h2, method := i%2 == 0, []string{http.MethodGet, http.MethodPost, http.MethodPut}[i%3]
			transport := &http.Transport{DialTLSContext: balancer.dial(h2), ForceAttemptHTTP2: h2}
			client := &http.Client{Transport: transport, Timeout: 20 * time.Second}
			clients.Go(func() {
				defer transport.CloseIdleConnections()
				for n := 0; ctx.Err() == nil; n++ {
					if err := exchange(client, method, fmt.Sprint("body ", n)); err != nil {
						failed.Add(1)
						t.Errorf("%s over HTTP/2 %t failed: %v, want no error during the rolling restart", method, h2, err)
					}
					served.Add(1)
					time.Sleep(pause)
				}
			})
		}
		for round := range rounds {
			old := servers[0]
			servers = append(servers[1:], start())
			balancer.add(servers[2])
			stopped := make(chan error, 1)
			go func() { stopped <- old.stop() }()
			time.AfterFunc(noticed, func() { balancer.remove(old) }) // when its health check fails
			if err := <-stopped; err != nil {
				t.Error(err)
			}
			soon(t, "a hundred requests to each round", func() bool { return served.Load() >= 100*int64(round+1) })
		}
		cancel()
		clients.Wait()
		t.Logf("%d requests, %d failed", served.Load(), failed.Load())
	})
}

// exchange sends a request and checks that the response equals its body.
func exchange(client *http.Client, method, body string) error {
	var sent io.Reader
	if method != http.MethodGet {
		sent = io.NopCloser(strings.NewReader(body)) // cannot be sent twice
	} else {
		body = ""
	}
	r, err := http.NewRequest(method, "https://front/api", sent)
	if err != nil {
		return err
	}
	r.Header.Set("Test-User", "alice")
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || string(got) != body {
		return fmt.Errorf("%s %q", resp.Status, got)
	}
	return nil
}
