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

// translate translates a client's websocket to SPDY for a kubelet. It dials the kubelet first, so that the client
// receives a Status if that fails.
func (c *Connector) translate(w http.ResponseWriter, r *http.Request, t *proxy.Target, o translation.Options) {
	conn, err := c.config.Proxy().Dial(r, t)
	if err != nil {
		respond.Error(w, r, err)
		return
	}
	closeConn := sync.OnceFunc(func() { _ = conn.Close() }) // either side may have closed it
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
	// The scheme is "http" because conn already provides TLS.
	location := &url.URL{Scheme: "http", Host: t.Host, Path: t.Path, RawQuery: t.RawQuery}
	translation.NewStreamTranslatorHandler(location, once, 0, o).ServeHTTP(&clientWriter{w, closeConn}, r.WithContext(ctx))
}

// clientWriter supports Hijack for the websocket server of apimachinery.
type clientWriter struct {
	http.ResponseWriter
	onClientGone func() // called when reading from the client fails; may be nil
}

// Unwrap supports http.ResponseController.
func (w *clientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements http.Hijacker.
func (w *clientWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	// Clear the deadline that the server set for reading the request.
	if err := conn.SetDeadline(time.Time{}); err != nil {
		_ = conn.Close() // the first error is the one to report
		return nil, nil, err
	}
	watched := &watchedConn{Conn: conn, reader: conn, onClientGone: w.onClientGone}
	if buffered != nil && buffered.Reader.Buffered() > 0 {
		watched.reader = io.MultiReader(io.LimitReader(buffered.Reader, int64(buffered.Reader.Buffered())), conn)
	}
	return watched, bufio.NewReadWriter(bufio.NewReader(watched), bufio.NewWriter(watched)), nil
}

// watchedConn calls left when reading from the client fails. Otherwise a command without output would continue
// without its client.
type watchedConn struct {
	net.Conn
	reader       io.Reader
	onClientGone func()
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.reader.Read(p)
	if err != nil && c.onClientGone != nil {
		c.onClientGone()
	}
	return n, err
}
