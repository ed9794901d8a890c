package kubelet

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	translation "k8s.io/apiserver/pkg/util/proxy"

	"portico.dev/internal/proxy"
	"portico.dev/internal/respond"
)

var errUsed = errors.New("the connection to the kubelet was used")

// translate lets a client's websocket speak with a kubelet that takes SPDY. The connection to the kubelet is made first, so that a
// client is told by a Status when there is none.
func (c *Connector) translate(w http.ResponseWriter, r *http.Request, t *proxy.Target, o translation.Options) {
	conn, err := c.config.Proxy().Dial(r, t)
	if err != nil {
		respond.Error(w, r, err)
		return
	}
	closeConn := sync.OnceFunc(func() { _ = conn.Close() }) // either side may have ended it
	defer closeConn()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	var used atomic.Bool
	once := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		if used.Swap(true) {
			return nil, errUsed
		}
		return conn, nil
	}}
	// "http" because TLS is below conn already.
	location := &url.URL{Scheme: "http", Host: t.Host, Path: t.Path, RawQuery: t.RawQuery}
	translation.NewStreamTranslatorHandler(location, once, 0, o).ServeHTTP(&clientWriter{w, closeConn}, r.WithContext(ctx))
}

// clientWriter lets the library take over the client's connection.
type clientWriter struct {
	http.ResponseWriter
	left func() // called when nothing more can be read of the client; may be nil
}

// Unwrap is for http.ResponseController.
func (w *clientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements http.Hijacker.
func (w *clientWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	// What the server's read of the request set no longer holds.
	if err := conn.SetDeadline(time.Time{}); err != nil {
		_ = conn.Close() // the error is the one to tell
		return nil, nil, err
	}
	watched := &watchedConn{Conn: conn, reader: conn, left: w.left}
	if buffered != nil && buffered.Reader.Buffered() > 0 {
		watched.reader = io.MultiReader(io.LimitReader(buffered.Reader, int64(buffered.Reader.Buffered())), conn)
	}
	return watched, bufio.NewReadWriter(bufio.NewReader(watched), bufio.NewWriter(watched)), nil
}

// watchedConn tells when its other side has ended: a command without output would go on without its client for as long as it likes.
type watchedConn struct {
	net.Conn
	reader io.Reader
	left   func()
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.reader.Read(p)
	if err != nil && c.left != nil {
		c.left()
	}
	return n, err
}
