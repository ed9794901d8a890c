package transport

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// direct returns a tunnel that connects to the address elsewhere, or to the requested address if elsewhere is empty.
func direct(elsewhere string) *Tunnel {
	return &Tunnel{Network: "cluster", Received: time.Now, Dial: func(ctx context.Context, address string) (net.Conn, error) {
		if elsewhere != "" {
			address = elsewhere
		}
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}}
}

// A tunnel may connect to any server. That server must still present the backend's certificate.
func TestA49TunnelToWrongServerIsRejected(t *testing.T) {
	w := newTestEnv(t)
	right := w.serve(text("right"))
	others := newTestEnv(t).serve(text("wrong"))
	s := w.set(func(o *Options) { o.Tunnel = direct("") })
	if got, err := get(t, w.backend(s, right.address)); err != nil || got != "right" {
		t.Errorf("GET through a correct tunnel = %q with the error %v, want right", got, err)
	}
	for _, upgrade := range []bool{false, true} {
		lies := w.set(func(o *Options) { o.Tunnel = direct(others.address) })
		b := w.backend(lies, right.address)
		var err error
		if upgrade {
			_, err = b.DialUpgrade(t.Context())
		} else {
			_, err = get(t, b)
		}
		var failed *Error
		if !errors.As(err, &failed) {
			t.Fatalf("request through a wrong tunnel, upgrade %t, error = %v, want an Error", upgrade, err)
		}
		if cause, _, _ := failed.Explain(); cause != "CertificateUntrusted" || failed.Sent {
			t.Errorf("request through a wrong tunnel, upgrade %t: cause %s, sent %t (%v), want CertificateUntrusted, not sent", upgrade, cause, failed.Sent, err)
		}
	}
}

// The address of a node, an endpoint or an ExternalName that is sent to the tunnel's server is a valid host that the guard
// allows.
func TestA49ForbiddenAddressIsNotSentToTunnel(t *testing.T) {
	g := guard{own: func() []string { return []string{"10.1.1.1:6443"} }, local: net.InterfaceAddrs}
	for address, refused := range map[string]bool{
		"10.2.3.4:443": false, "[2001:db8::7]:443": false, "n1.example.com:10250": false, "n1:10250": false, "a_b.example.:443": false,
		"3com.example5g:443": false,
		"127.0.0.1:443":      true, "[::1]:443": true, "[::ffff:169.254.169.254]:80": true, "169.254.169.254:80": true, "10.1.1.1:6443": true,
		"localhost:443": true, "a.LOCALHOST.:443": true,
		"127.1:443": true, "2130706433:443": true, "0x7f000001:443": true, "127.0x1:443": true, "0177.1:443": true, "1.2.3.4.:443": true, "127.0.0.08:443": true,
		"n1:80\r\nX: y": true, "n1:http": true, "n1:": true, "n1:99999": true, "n1:+80": true,
		"a\r\nX: y:443": true, "a b:443": true, "a/b:443": true, "fe80::1%eth0:443": true, "[fe80::1%25eth0]:443": true, ":443": true, "user@a:443": true,
		strings.Repeat("a", 300) + ":443": true,
	} {
		if err := g.checkUnresolved(address); (err != nil) != refused {
			t.Errorf("checkUnresolved(%q) = %v, want an error = %t", address, err, refused)
		}
	}
	g.loopback = true
	if err := g.checkUnresolved("localhost:443"); err != nil {
		t.Errorf("checkUnresolved(localhost:443) with loopback allowed = %v, want no error", err)
	}
}

// The error names a failure of a tunnel, which does not count as silence or as a response of the backend.
func TestTunnelFailureIsNamedInError(t *testing.T) {
	w := newTestEnv(t)
	tunnel := &TunnelError{Network: "cluster", Problem: TunnelUnreachable, Err: context.DeadlineExceeded}
	s := w.set(func(o *Options) {
		o.Tunnel = &Tunnel{Network: "cluster", Received: time.Now, Dial: func(context.Context, string) (net.Conn, error) { return nil, tunnel }}
	})
	b := w.backend(s, "10.0.0.1:443")
	_, err := get(t, b)
	var failed *Error
	if !errors.As(err, &failed) {
		t.Fatalf("GET through a broken tunnel error = %v, want an Error", err)
	}
	cause, said, passing := failed.Explain()
	if cause != "TunnelUnreachable" || said != "the tunnel to the cluster network cannot be reached" || !passing || failed.Sent {
		t.Errorf("Explain() = %s: %s (passing %t, sent %t), want TunnelUnreachable, passing, not sent", cause, said, passing, failed.Sent)
	}
	if silence := b.Silence(); !silence.Since.IsZero() || silence.Broken {
		t.Errorf("silence of the backend behind a broken tunnel = %+v, want none", silence)
	}
	plains := NewPlains(Options{Tunnel: s.options.Tunnel})
	defer plains.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://ignored/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plains.To("10.0.0.1:80").RoundTrip(r); !IsTunnelError(err) {
		t.Errorf("request without TLS through a broken tunnel error = %v, want a tunnel error", err)
	}
}

// The socket options of a connection through a tunnel can be set.
func TestTunnelConnectionAcceptsSocketOptions(t *testing.T) {
	w := newTestEnv(t)
	server := w.serve(text("x"), "http/1.1")
	raw, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.address)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if err := relaxUserTimeout(around{raw}); err != nil {
		t.Error(err)
	}
	_ = raw.Close()
	if err := relaxUserTimeout(around{raw}); err == nil {
		t.Error("relaxUserTimeout of a closed socket succeeded, want an error")
	}
}

type around struct{ net.Conn }

func (a around) NetConn() net.Conn { return a.Conn }

// A backend counts as silent behind a tunnel through which other backends respond. Otherwise the tunnel may be the cause.
func TestSilenceWithoutTunnelDataNamesTunnel(t *testing.T) {
	var received time.Time
	w := newTestEnv(t)
	s := w.set(func(o *Options) {
		o.Tunnel = &Tunnel{Network: "cluster", Received: func() time.Time { return received }, Dial: direct("").Dial}
	})
	b := w.backend(s, "10.0.0.1:443")
	since := time.Now()
	b.silence.connectionSilent(since)
	if got := b.Silence(); got.Tunnel != "cluster" || !got.Broken {
		t.Errorf("silence without data through the tunnel = %+v, want a broken connection that names the tunnel", got)
	}
	received = since.Add(time.Second)
	if got := b.Silence(); got.Tunnel != "" || !got.Broken {
		t.Errorf("silence with data through the tunnel = %+v, want a broken connection without the tunnel", got)
	}
}
