package pki

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"testing"
)

func TestRestrict(t *testing.T) {
	a, err := NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := a.Issue(Leaf{CommonName: "localhost", DNSNames: []string{"localhost"}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := StaticKeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.Certificate)
	const suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
	for name, c := range map[string]struct {
		version  string
		suites   []string
		client   *tls.Config
		err      string
		accepted bool
	}{
		"TLS 1.2 by default":            {client: &tls.Config{MaxVersion: tls.VersionTLS12}, accepted: true},
		"TLS 1.3 alone":                 {version: "VersionTLS13", client: &tls.Config{MaxVersion: tls.VersionTLS12}},
		"the suite that is offered":     {suites: []string{suite}, client: &tls.Config{MaxVersion: tls.VersionTLS12}, accepted: true},
		"a suite that is not":           {suites: []string{suite}, client: &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}},
		"an old version by flag":        {version: "VersionTLS10", err: "VersionTLS12 and VersionTLS13"},
		"a suite that is not safe":      {suites: []string{"TLS_RSA_WITH_AES_128_CBC_SHA"}, err: "not on offer"},
		"a suite that does not exist":   {suites: []string{"TLS_X"}, err: suite},
		"TLS 1.3 has suites of its own": {version: "VersionTLS13", suites: []string{suite}, client: &tls.Config{}, accepted: true},
	} {
		t.Run(name, func(t *testing.T) {
			config := ServerConfig(pair)
			err := Restrict(config, c.version, c.suites)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("Restrict(%q, %q) error = %v, want an error that contains %q", c.version, c.suites, err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			near, far := net.Pipe()
			go func() { _ = tls.Server(far, config).Handshake(); _ = far.Close() }()
			c.client.RootCAs, c.client.ServerName = roots, "localhost"
			err = tls.Client(near, c.client).Handshake()
			if (err == nil) != c.accepted {
				t.Errorf("handshake error = %v, want success = %t", err, c.accepted)
			}
			_ = near.Close()
		})
	}
}
