package extension

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/http2"

	"portico.dev/internal/pki"
)

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 3 * time.Minute
	// maxHeaderBytes is kube-apiserver's limit. A front door may forward a user with thousands of groups.
	maxHeaderBytes = 1 << 20
)

// Ready returns a channel that is closed when the host accepts connections.
func (h *Host) Ready() <-chan struct{} { return h.ready }

// Address returns the host:port of the listener, or an empty string before Ready.
func (h *Host) Address() string {
	if a := h.address.Load(); a != nil {
		return *a
	}
	return ""
}

// Handler returns the handler of the listener, for a program with its own HTTP server. Clients are authenticated by the TLS
// state of the request (http.Request.TLS), so that server must request client certificates without verifying them
// (tls.RequestClientCert). Watches end when the context of Run ends.
func (h *Host) Handler() http.Handler { return h.handler() }

// Run listens and serves until ctx ends, and then drains: /readyz fails, connections close gracefully, watches
// end cleanly, and requests in flight have up to ShutdownTimeout to finish.
func (h *Host) Run(ctx context.Context) error {
	if h.config.NoListener {
		close(h.ready)
		<-ctx.Done()
		h.drainHandler()
		return nil
	}
	address := net.JoinHostPort(h.config.BindAddress, strconv.Itoa(h.config.Port))
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w; choose another --secure-port, or 0 for a free one", address, err)
	}
	bound := l.Addr().String()
	h.address.Store(&bound)

	// Requests have a separate context: the end of ctx must start the drain, not cancel every request at once.
	alive, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	server := h.server(alive)
	// Use the version in go.mod instead of the copy in net/http, which changes only with Go.
	//lint:ignore SA1019 http.Server.Protocols chooses the copy within net/http
	if err := http2.ConfigureServer(server, nil); err != nil {
		_ = l.Close() // the first error is more useful
		return fmt.Errorf("configure HTTP/2 on %s: %w", bound, err)
	}
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(l, "", "") }()
	close(h.ready)
	select {
	case err := <-failed:
		return fmt.Errorf("serve on %s: %w", bound, err)
	case <-ctx.Done():
	}
	h.drain(server, end)
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", bound, err)
	}
	return nil
}

func (h *Host) server(alive context.Context) *http.Server {
	return &http.Server{
		Handler:           h.handler(),
		TLSConfig:         h.tlsConfig(),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return alive },
		ErrorLog:          log.New(zapLines{h.limited}, "", 0),
		// A front door multiplexes all its users over a few connections.
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1000, SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
}

// drain shuts the host down. It ends watches first, because they would otherwise use up the timeout.
func (h *Host) drain(server *http.Server, endRequests context.CancelFunc) {
	h.draining.Store(true)
	if h.config.ShutdownDelay > 0 {
		delay := time.NewTimer(h.config.ShutdownDelay)
		<-delay.C
	}
	h.endWatches()
	ctx, cancel := context.WithTimeout(context.Background(), h.config.ShutdownTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		h.log.Warn("terminating requests at the end of the shutdown timeout", zap.Duration("after", h.config.ShutdownTimeout))
		endRequests()
		_ = server.Close()
	}
	h.closeHijacked(ctx, endRequests)
}

// drainHandler ends the watches and connect requests of a host without a listener.
func (h *Host) drainHandler() {
	h.draining.Store(true)
	h.endWatches()
	ctx, cancel := context.WithTimeout(context.Background(), h.config.ShutdownTimeout)
	defer cancel()
	h.closeHijacked(ctx, func() {})
}

// closeHijacked waits for watches and connect requests. When ctx ends, it cancels them and closes the hijacked connections.
func (h *Host) closeHijacked(ctx context.Context, endRequests context.CancelFunc) {
	over := make(chan struct{})
	go func() {
		h.conversing.Wait()
		close(over)
	}()
	select {
	case <-over:
		return
	case <-ctx.Done():
	}
	endRequests()
	h.hijacked.closeAll()
	<-over
}

func (h *Host) notDraining(context.Context) error {
	if h.draining.Load() {
		return errDraining
	}
	return nil
}

func (h *Host) tlsConfig() *tls.Config {
	base := pki.ServerConfigFor(h.config.GetCertificate)
	if h.config.ClientCAs == nil {
		return base
	}
	return pki.NameClientCAs(base, func(*tls.ClientHelloInfo) *x509.CertPool { return h.config.ClientCAs() })
}

// zapLines logs the messages of net/http's server, such as failed handshakes, at debug level, because any client can cause
// them.
type zapLines struct{ log *zap.Logger }

func (z zapLines) Write(line []byte) (int, error) {
	z.log.Debug("http server", zap.ByteString("line", line))
	return len(line), nil
}
