// Package portico is Portico's own implementation of HTTP: packages http1 and http2.
package portico

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"slices"

	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/httpengine/httpmsg"
	"portico.dev/internal/httpengine/portico/http1"
	"portico.dev/internal/httpengine/portico/http2/client"
	"portico.dev/internal/httpengine/portico/http2/server"
)

// Engine implements engine.Engine.
type Engine struct{}

// NewClientConn implements engine.Engine.
func (Engine) NewClientConn(ctx context.Context, tc *tls.Conn, config engine.ClientConfig) (engine.ClientConn, error) {
	c, err := client.New(ctx, tc, config)
	if err != nil {
		return nil, err // c is nil; returning it would make the interface non-nil
	}
	return c, nil
}

// httpServer is Portico's HTTP/1.1 and HTTP/2 server.
type httpServer struct {
	http1 *http1.Server
	http2 *server.Server
}

// NewServer implements engine.Engine.
func (Engine) NewServer(c engine.ServerConfig) engine.Server {
	return &httpServer{
		http1: http1.New(http1.Config{
			Handler: c.Handler, Context: c.Context, MaxHeaderBytes: c.MaxHeaderBytes, LargeHeaders: c.LargeHeaders, HeaderTimeout: c.HeaderTimeout, IdleTimeout: c.IdleTimeout,
			Refuse: c.Refuse, Logf: c.Logf,
		}),
		http2: server.New(server.Config{
			Handler: c.Handler, Context: c.Context, MaxConcurrentStreams: c.MaxConcurrentStreams, MaxHeaderBytes: c.MaxHeaderBytes, LargeHeaders: c.LargeHeaders,
			PrefaceTimeout: c.HeaderTimeout, HeaderTimeout: c.HeaderTimeout, IdleTimeout: c.IdleTimeout,
			PingAfter: c.PingAfter, PingTimeout: c.PingTimeout, StallTimeout: c.StallTimeout, Refuse: c.Refuse, Logf: c.Logf,
		}),
	}
}

func (s *httpServer) Begin(c *tls.Conn, hijacked func()) (serve func()) {
	if c.ConnectionState().NegotiatedProtocol == "h2" {
		return s.http2.Begin(c)
	}
	return s.http1.Begin(c, hijacked)
}

func (s *httpServer) GoAway(ctx context.Context) error { return s.http2.GoAway(ctx) }

func (s *httpServer) Shutdown(ctx context.Context) error {
	first := make(chan error, 1)
	go func() { first <- s.http1.Shutdown(ctx) }()
	err := s.http2.Shutdown(ctx)
	return errors.Join(<-first, err)
}

// CloseIdle begins with HTTP/2, because idle HTTP/2 connections hold more memory: header tables, and buffers for frames.
func (s *httpServer) CloseIdle(n int) int {
	closed := s.http2.CloseIdle(n)
	return closed + s.http1.CloseIdle(n-closed)
}

func (s *httpServer) CutLargest(bytes int64) (cut int) {
	all := append(s.http1.LargeConns(), s.http2.LargeConns()...)
	slices.SortFunc(all, func(a, b httpmsg.ConnMemory) int { return cmp.Compare(b.Bytes, a.Bytes) })
	for _, h := range all {
		if bytes <= 0 {
			break
		}
		h.Conn.Cut()
		bytes -= h.Bytes
		cut++
	}
	return cut
}

func (s *httpServer) Close() {
	s.http1.Close()
	s.http2.Close()
}
