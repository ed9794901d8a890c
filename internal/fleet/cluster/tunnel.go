package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	netproxy "golang.org/x/net/proxy"
	"k8s.io/client-go/rest"

	"portico.dev/internal/nodes/egress"
	"portico.dev/internal/pki"
	"portico.dev/internal/transport"
)

// tunnelFor returns the tunnel through the proxy of the kubeconfig (proxy-url) or of the environment (HTTPS_PROXY, NO_PROXY), as
// client-go uses it. It returns nil if there is none.
func tunnelFor(config *rest.Config, address *url.URL) (*transport.Tunnel, error) {
	choose := config.Proxy
	if choose == nil {
		choose = http.ProxyFromEnvironment
	}
	through, err := choose(&http.Request{URL: address})
	if err != nil || through == nil {
		return nil, err
	}
	d := &proxyDialer{url: through}
	switch through.Scheme {
	case "http", "https":
	case "socks5", "socks5h":
		made, err := netproxy.FromURL(through, &d.net)
		if err != nil {
			return nil, fmt.Errorf("the proxy %s: %w", through.Redacted(), err)
		}
		d.socks = made.(netproxy.ContextDialer)
	default:
		return nil, fmt.Errorf("the proxy %s: the scheme must be http, https or socks5", through.Redacted())
	}
	return &transport.Tunnel{Network: "controlplane", Dial: d.dial, Received: func() time.Time { return time.Time{} }}, nil
}

// proxyDialer opens connections through a proxy.
type proxyDialer struct {
	url   *url.URL
	socks netproxy.ContextDialer // nil for HTTP
	net   net.Dialer
}

func (d *proxyDialer) dial(ctx context.Context, address string) (conn net.Conn, err error) {
	if d.socks != nil {
		conn, err = d.socks.DialContext(ctx, "tcp", address)
	} else {
		conn, err = d.connect(ctx, address)
	}
	if err != nil {
		return nil, &transport.TunnelError{Network: "controlplane", Problem: transport.TunnelUnreachable, Err: fmt.Errorf("through the proxy %s: %w", d.url.Redacted(), err)}
	}
	return conn, nil
}

// connect sends CONNECT to an HTTP proxy (RFC 9110, section 9.3.6).
func (d *proxyDialer) connect(ctx context.Context, address string) (net.Conn, error) {
	var server netproxy.ContextDialer = &d.net
	port := cmp.Or(d.url.Port(), "80")
	if d.url.Scheme == "https" {
		config, err := pki.ClientConfig(pki.ClientOptions{ServerName: d.url.Hostname(), HTTP1Only: true})
		if err != nil {
			return nil, err
		}
		server = &tls.Dialer{NetDialer: &d.net, Config: config}
		port = cmp.Or(d.url.Port(), "443")
	}
	conn, err := server.DialContext(ctx, "tcp", net.JoinHostPort(d.url.Hostname(), port))
	if err != nil {
		return nil, err
	}
	authorization := ""
	if user := d.url.User; user != nil {
		password, _ := user.Password()
		authorization = "Basic " + base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password))
	}
	return egress.Connect(ctx, conn, address, authorization)
}
