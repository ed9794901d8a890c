package environment

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"portico.dev/internal/pki"
)

// serveBare runs an httputil.ReverseProxy with the TLS configuration and connection pools of the front door. It
// performs no authentication, sets the user alice on every request, and writes no log.
func serveBare(http2 bool) role {
	return func(o *commands, announce announcement) error {
		proxy, err := newBare(o, http2)
		if err != nil {
			return err
		}
		return serveLibrary(o, announce, proxy)
	}
}

// serveLibrary serves a handler with net/http's server.
func serveLibrary(o *commands, announce announcement, h http.Handler) error {
	certificate, err := pki.StaticKeyPair(o.Serving.Certificate, o.Serving.Key)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := announce(l.Addr().String(), nil); err != nil {
		return err
	}
	s := &http.Server{
		Handler: h, TLSConfig: pki.ServerConfig(certificate), ReadHeaderTimeout: time.Minute,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 250},
	}
	return s.ServeTLS(l, "", "")
}

func newBare(o *commands, http2 bool) (*httputil.ReverseProxy, error) {
	certificate, err := pki.StaticKeyPair(o.Client.Certificate, o.Client.Key)
	if err != nil {
		return nil, err
	}
	config, err := pki.ClientConfig(pki.ClientOptions{ServerName: o.BackendServerName, Roots: o.CA, Certificate: certificate, HTTP1Only: !http2})
	if err != nil {
		return nil, err
	}
	t := &http.Transport{
		TLSClientConfig: config, DisableCompression: true, MaxIdleConnsPerHost: 300, WriteBufferSize: 32 << 10, ReadBufferSize: 32 << 10,
		Protocols: protocols(http2),
	}
	to := &url.URL{Scheme: "https", Host: o.Backend}
	return &httputil.ReverseProxy{
		Transport: t, BufferPool: &buffers{},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.SetXForwarded()
			r.Out.Header.Del("Authorization")
			r.Out.Header["X-Remote-User"] = []string{"alice"}
			r.Out.Header["X-Remote-Group"] = []string{"dev", "ops", "system:authenticated"}
		},
	}, nil
}

// protocols returns a set of only HTTP/2 or only HTTP/1.1.
func protocols(http2 bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(!http2)
	p.SetHTTP2(http2)
	return p
}

type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if kept, ok := b.pool.Get().(*[]byte); ok {
		return *kept
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(kept []byte) { b.pool.Put(&kept) }
