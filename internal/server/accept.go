package server

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// acceptor performs the TLS handshake of each connection, which negotiates the protocol, and starts to serve it.
type acceptor struct {
	listener   net.Listener
	config     *tls.Config
	limits     limits
	handshakes *handshakes
	// begin receives a connection and returns the function that serves it to its end. A handler that hijacks the
	// connection calls hijacked.
	begin       func(c *tls.Conn, hijacked func()) (serve func())
	closed      atomic.Bool
	starting    sync.Mutex      // Start and Close may run in different goroutines
	ctx         context.Context // canceled to end pending handshakes
	close       func()
	handshaking sync.WaitGroup // pending handshakes
	conns       sync.WaitGroup // open connections
}

func newAcceptor(l net.Listener, config *tls.Config, m limits, bound *handshakes, begin func(*tls.Conn, func()) func()) *acceptor {
	a := &acceptor{listener: l, config: bound.config(config), limits: m, handshakes: bound, begin: begin}
	living, end := context.WithCancel(context.Background())
	a.ctx = living
	a.close = sync.OnceFunc(func() {
		a.starting.Lock()
		a.closed.Store(true)
		a.starting.Unlock()
		_ = l.Close() // accept ignores errors once closed is set
		late := time.AfterFunc(handshakeGrace, end)
		a.handshaking.Wait()
		late.Stop()
		end()
	})
	return a
}

// handshakeGrace is how long pending handshakes may continue after Close: their clients rely on this server.
const handshakeGrace = time.Second

// Close stops accepting and returns when every handshake has ended. It leaves connections open.
func (a *acceptor) Close() { a.close() }

// Wait returns when every connection has ended or ctx is done. It does not close connections.
func (a *acceptor) Wait(ctx context.Context) error {
	ended := make(chan struct{})
	go func() { // outlives ctx while a handler runs
		a.conns.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Start accepts connections until Close, or until the listener fails, and then sends the result.
func (a *acceptor) Start() <-chan error {
	ended := make(chan error, 1)
	a.starting.Lock()
	defer a.starting.Unlock()
	if a.closed.Load() {
		ended <- nil
		return ended
	}
	a.handshaking.Go(func() { ended <- a.accept() }) // Close also waits for the last accepted connection
	return ended
}

func (a *acceptor) accept() error {
	var pause time.Duration
	for {
		conn, err := a.listener.Accept()
		if err == nil {
			pause = 0
			begun, leave := a.handshakes.begin(conn)
			a.handshaking.Go(func() {
				defer leave()
				a.handshake(begun)
			})
			continue
		}
		if a.closed.Load() {
			return nil
		}
		if !tooManyFiles(err) {
			return err
		}
		// Out of file descriptors: wait until other files are closed. Attack row D9.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		timer := time.NewTimer(pause)
		select {
		case <-a.ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (a *acceptor) handshake(begun *handshake) {
	ctx, cancel := context.WithTimeout(a.ctx, a.limits.handshake)
	defer cancel()
	below := newStallConn(begun.conn, a.limits.stall)
	below.handshake, below.readLimiter = begun, a.handshakes.readLimiter
	defer below.releaseSlot()
	conn := tls.Server(below, a.config)
	if err := conn.HandshakeContext(ctx); err != nil {
		answerPlainHTTP(begun.conn, err)
		_ = begun.conn.Close()
		return
	}
	// Serve on a new goroutine: the handshake has grown the stack of this one.
	a.conns.Go(a.begin(conn, func() { below.hijacked.Store(true) }))
}

// plainHTTPAnswer is net/http's response.
const plainHTTPAnswer = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"

// answerPlainHTTP responds to a client that sent HTTP instead of TLS, as net/http does, without reading the request.
// The response fits into the socket's buffer; the deadline is for connections without one.
func answerPlainHTTP(c net.Conn, err error) {
	var header tls.RecordHeaderError
	if !errors.As(err, &header) || header.Conn == nil {
		return
	}
	switch string(header.RecordHeader[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO":
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(c, plainHTTPAnswer) // the client may be gone
	}
}

func tooManyFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}
