package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// acceptor gets connections through TLS before anybody sees them, because only then is it known whether they speak
// HTTP/2, which serve does, or HTTP/1.1, which is read through a framedConn and goes to net/http.
type acceptor struct {
	net.Listener
	config *tls.Config
	limits limits
	http2  func(*tls.Conn) // serves a connection to its end
	conns  chan net.Conn
	failed chan error
	living context.Context // ends with Close
	close  func() error
	wait   sync.WaitGroup // handshakes
	served sync.WaitGroup // connections that http2 has
}

func newAcceptor(l net.Listener, config *tls.Config, m limits, http2 func(*tls.Conn)) *acceptor {
	a := &acceptor{Listener: l, config: config, limits: m, http2: http2, conns: make(chan net.Conn), failed: make(chan error, 1)}
	living, end := context.WithCancel(context.Background())
	a.living = living
	a.close = sync.OnceValue(func() error {
		end()
		err := l.Close()
		a.wait.Wait()
		return err
	})
	a.wait.Go(a.run)
	return a
}

// Accept implements net.Listener.
func (a *acceptor) Accept() (net.Conn, error) {
	select {
	case c := <-a.conns:
		return c, nil
	case err := <-a.failed:
		a.failed <- err // for whoever asks again
		return nil, err
	}
}

// Close implements net.Listener. It returns when every handshake has ended. Connections go on.
func (a *acceptor) Close() error { return a.close() }

// Ended returns when every connection over HTTP/2 has ended, which is for others to bring about, or ctx has.
func (a *acceptor) Ended(ctx context.Context) error {
	ended := make(chan struct{})
	go func() { // outlives ctx when a handler does
		a.served.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *acceptor) run() {
	var pause time.Duration
	for {
		conn, err := a.Listener.Accept()
		if err == nil {
			pause = 0
			a.wait.Go(func() { a.handshake(conn) })
			continue
		}
		if a.living.Err() != nil || !tooManyFiles(err) {
			a.failed <- err
			return
		}
		// Out of file descriptors: others will close theirs. Attack row D9.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		timer := time.NewTimer(pause)
		select {
		case <-a.living.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (a *acceptor) handshake(raw net.Conn) {
	ctx, cancel := context.WithTimeout(a.living, a.limits.handshake)
	defer cancel()
	below := newStallConn(raw, a.limits.stall)
	conn := tls.Server(below, a.config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return
	}
	state := conn.ConnectionState()
	if state.NegotiatedProtocol == "h2" {
		a.served.Go(func() { a.http2(conn) }) // with a stack that no handshake has made large
		return
	}
	select {
	case a.conns <- &framedConn{Conn: conn, state: state, below: below}:
	case <-a.living.Done():
		_ = raw.Close()
	}
}

func tooManyFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

type connKey struct{}

// withConn remembers the connection, for withTLS.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if f, ok := c.(*framedConn); ok {
		return context.WithValue(ctx, connKey{}, f)
	}
	return ctx
}

// withTLS gives requests of a framedConn the TLS state that net/http only takes from a *tls.Conn.
func withTLS(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil {
			if f, ok := r.Context().Value(connKey{}).(*framedConn); ok {
				r.TLS = &f.state
			}
		}
		next.ServeHTTP(w, r)
	})
}
