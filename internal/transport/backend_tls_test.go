package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"portico.dev/internal/pki"
)

func TestBackendWithTLS(t *testing.T) {
	s := New(Options{})
	config := &tls.Config{NextProtos: []string{"http/1.1"}, ServerName: "other", MinVersion: tls.VersionTLS12}
	spec := Spec{Name: "hook/webhook:443", ServerName: "webhook.hook.svc", Endpoints: []Endpoint{{Address: "192.0.2.1:443"}}}
	a, err := s.BackendWithTLS(spec, "a", config)
	if err != nil {
		t.Fatal(err)
	}
	if a.tls == config || a.tls.ServerName != spec.ServerName || fmt.Sprint(a.tls.NextProtos) != "[h2 http/1.1]" || config.ServerName != "other" {
		t.Errorf("TLS configuration of the backend = %+v, want a copy with the server name %s and h2 first", a.tls, spec.ServerName)
	}
	if len(a.Endpoints()) != 1 || a.Name() != spec.Name {
		t.Errorf("backend = %+v, want the name %s and 1 endpoint", a.Report(), spec.Name)
	}
	spec.Endpoints = nil
	if again, err := s.BackendWithTLS(spec, "a", config); err != nil || again != a || len(a.Endpoints()) != 0 {
		t.Errorf("BackendWithTLS with the same ID = %v with the error %v, want the same backend without endpoints", again.Report(), err)
	}
	if b, err := s.BackendWithTLS(spec, "b", config); err != nil || b == a {
		t.Errorf("BackendWithTLS with another ID = %v with the error %v, want another backend", b, err)
	}
	s.Close()
	if _, err := s.BackendWithTLS(spec, "c", config); !errors.Is(err, ErrClosed) {
		t.Errorf("BackendWithTLS after Close error = %v, want ErrClosed", err)
	}
}

func TestExplain(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for want, e := range map[string]*Error{
		"ConnectionRefused: it refused the connection":                                         {Op: OpDial, Err: &connectError{OpDial, refused}},
		"ConnectTimeout: it could not be connected to in time":                                 {Op: OpDial, Err: context.DeadlineExceeded},
		"TLSTimeout: it did not complete the TLS handshake in time":                            {Op: OpTLS, Err: context.DeadlineExceeded},
		"NoEndpoints: its Service has no endpoints":                                            {Op: OpPick, Err: ErrNoEndpoints},
		"Unresponsive: it answers no requests":                                                 {Op: OpRoundTrip, Err: ErrUnresponsive, Sent: true},
		"TLSFailed: the TLS handshake with it failed":                                          {Op: OpTLS, Err: errors.New("x")},
		"NotAccepted: it did not accept the request":                                           {Op: OpRoundTrip, Err: errors.New("x")},
		"ForbiddenAddress: its Service leads to an address that must not be dialled; it lasts": {Op: OpDial, Err: &ForbiddenAddressError{}},
	} {
		cause, text, passing := e.Explain()
		got := cause + ": " + text
		if !passing {
			got += "; it lasts"
		}
		if got != want {
			t.Errorf("Explain() = %s, want %s", got, want)
		}
	}
}

// Explain reports a TLS alert of the server: in TLS 1.2, where it ends the handshake, and in 1.3, where a client certificate is rejected after it.
func TestExplainAlerts(t *testing.T) {
	authority, err := pki.NewAuthority("servers")
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := authority.Issue(pki.Leaf{CommonName: "server", DNSNames: []string{"server"}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority.Certificate)
	noCertificate := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("there is none yet") }
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for want, config := range map[string]*tls.Config{
			"TLSInternalError": {GetCertificate: noCertificate},
			"TLSAlert":         {Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert},
		} {
			config.MinVersion, config.MaxVersion = version, version
			err := handshake(t, config, roots)
			if cause, text, _ := (&Error{Op: OpTLS, Err: &connectError{OpTLS, err}}).Explain(); cause != want {
				t.Errorf("Explain() of %v over %s = %s: %s, want %s", err, tls.VersionName(version), cause, text, want)
			}
		}
	}
}

// handshake returns the error of a client that connects to a server with this configuration, and reads.
func handshake(t *testing.T, config *tls.Config, roots *x509.CertPool) error {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		conn, err := listener.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		_ = tls.Server(conn, config).Handshake() // it fails
		<-over                                   // an earlier close could reset the connection before the client has read the alert
		_ = conn.Close()
	}()
	dialer := &net.Dialer{Timeout: time.Minute}
	conn, err := tls.DialWithDialer(dialer, "tcp", listener.Addr().String(), &tls.Config{RootCAs: roots, ServerName: "server", MinVersion: tls.VersionTLS12})
	if err == nil {
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_, err = conn.Read(make([]byte, 1))
		_ = conn.Close()
	}
	close(over)
	<-done
	return err
}
