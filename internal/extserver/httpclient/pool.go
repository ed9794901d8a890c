package httpclient

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"portico.dev/internal/pki"
)

// rereadInterval is the interval at which the files are checked for changes.
const rereadInterval = 30 * time.Second

// TLS configures the verification of a server and the client certificate.
type TLS struct {
	// CAFile or CA (PEM) contains the CA certificates of the server. Default: the system's trust store.
	CAFile string
	CA     []byte
	// ServerName is the expected name in the server certificate. Default: the host of the URL.
	ServerName string
	// Insecure accepts any server certificate. An intermediary can then read the token.
	Insecure bool
	// CertFile and KeyFile, or Cert and Key (PEM), are the client certificate. Default: none.
	CertFile, KeyFile string
	Cert, Key         []byte
}

// credentials contains the PEM data of a TLS.
type credentials struct{ ca, cert, key []byte }

func (t TLS) read() (m credentials, err error) {
	for _, part := range []struct {
		what, file string
		data       []byte
		to         *[]byte
	}{
		{"CA", t.CAFile, t.CA, &m.ca},
		{"client certificate", t.CertFile, t.Cert, &m.cert},
		{"client key", t.KeyFile, t.Key, &m.key},
	} {
		*part.to = part.data
		if part.file == "" {
			continue
		}
		if *part.to, err = os.ReadFile(part.file); err != nil {
			return m, fmt.Errorf("%s: %w", part.what, err)
		}
	}
	if (m.cert == nil) != (m.key == nil) {
		return m, errors.New("a client certificate and its key go together")
	}
	return m, nil
}

func (m credentials) equal(o credentials) bool {
	return bytes.Equal(m.ca, o.ca) && bytes.Equal(m.cert, o.cert) && bytes.Equal(m.key, o.key)
}

func (t TLS) transport(m credentials) (*http.Transport, error) {
	options := pki.ClientOptions{ServerName: t.ServerName, Insecure: t.Insecure, Roots: m.ca}
	if m.cert != nil {
		pair, err := pki.StaticKeyPair(m.cert, m.key)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		options.Certificate = pair
	}
	config, err := pki.ClientConfig(options)
	if err != nil {
		return nil, err
	}
	return &http.Transport{
		TLSClientConfig:       config,
		ForceAttemptHTTP2:     true,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: headerTimeout,
		IdleConnTimeout:       90 * time.Second,
		MaxIdleConns:          256,
		MaxIdleConnsPerHost:   4,
	}, nil
}

// pool manages the transport of a client and replaces it when the files change.
type pool struct {
	tls  TLS
	wrap func(http.RoundTripper) http.RoundTripper

	mu   sync.Mutex // guards the fields below
	used credentials
	read time.Time
	base *http.Transport
	rt   http.RoundTripper
}

func newPool(t TLS, wrap func(http.RoundTripper) http.RoundTripper) (*pool, error) {
	p := &pool{tls: t, wrap: wrap}
	m, err := t.read()
	if err != nil {
		return nil, err
	}
	return p, p.build(m)
}

func (p *pool) build(m credentials) error {
	base, err := p.tls.transport(m)
	if err != nil {
		return err
	}
	if p.base != nil {
		p.base.CloseIdleConnections()
	}
	p.base, p.rt, p.used, p.read = base, base, m, time.Now()
	if p.wrap != nil {
		p.rt = p.wrap(base)
	}
	return nil
}

// current returns the current transport. If the files cannot be read or do not match, e.g. because a certificate is written
// before its key, the previous ones remain in use.
func (p *pool) current() http.RoundTripper {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.read) < rereadInterval {
		return p.rt
	}
	p.read = time.Now()
	if m, err := p.tls.read(); err == nil && !m.equal(p.used) {
		_ = p.build(m)
	}
	return p.rt
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.base.CloseIdleConnections()
}
