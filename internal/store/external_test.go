package store

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"portico.dev/internal/pki"
	"portico.dev/internal/run/freeport"
)

// secureEtcd starts an external etcd that requires client certificates of its authority.
func secureEtcd(t *testing.T) (cfg Config, otherCA Config) {
	t.Helper()
	dir := t.TempDir()
	authority, err := pki.NewAuthority("etcd")
	if err != nil {
		t.Fatal(err)
	}
	other, err := pki.NewAuthority("somebody")
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	issue := func(a *pki.Authority, name string, leaf pki.Leaf) (cert, key string) {
		leaf.TTL = time.Hour
		certPEM, keyPEM, err := a.Issue(leaf)
		if err != nil {
			t.Fatal(err)
		}
		return file(name+".crt", certPEM), file(name+".key", keyPEM)
	}
	ca := file("ca.crt", authority.PEM())
	serverCert, serverKey := issue(authority, "server", pki.Leaf{CommonName: "etcd", IPs: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(127, 0, 0, 2)}, Server: true, Client: true})
	clientCert, clientKey := issue(authority, "client", pki.Leaf{CommonName: "portico", Client: true})
	strangeCert, strangeKey := issue(other, "stranger", pki.Leaf{CommonName: "portico", Client: true})

	c := asFlagsMakeIt(Config{DataDir: filepath.Join(dir, "data"), Logger: zap.NewNop()})
	listen := url.URL{Scheme: "https", Host: freeAddress(t)}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{listen}, []url.URL{listen}
	c.ClientTLSInfo = transport.TLSInfo{CertFile: serverCert, KeyFile: serverKey, TrustedCAFile: ca, ClientCertAuth: true}
	server, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	servers := []string{listen.String()}
	return Config{Servers: servers, CAFile: ca, CertFile: clientCert, KeyFile: clientKey},
		Config{Servers: servers, CAFile: ca, CertFile: strangeCert, KeyFile: strangeKey}
}

// addresses gives out ports of an address that no other test listens on.
var addresses = freeport.Ports{Host: "127.0.0.2"}

// freeAddress returns an address for a server that must be configured with its port: etcd does not report the port that it was
// given for port 0.
func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := addresses.Free()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort(addresses.Host, strconv.Itoa(port))
}

func TestExternalEtcdRequiresValidTLS(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	cfg, otherCA := secureEtcd(t)
	s, stop := run(t, cfg)
	if err := s.Put(within(t), "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	t.Run("is reached by Dial", func(t *testing.T) {
		var dialled atomic.Int32
		through := cfg
		through.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			dialled.Add(1)
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
		s, stop := run(t, through)
		if err := s.Check(within(t)); err != nil || dialled.Load() == 0 {
			t.Errorf("Check() through Dial: error = %v with %d connections, want no error and at least 1 connection", err, dialled.Load())
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	t.Run("does not let a stranger in", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		var dialled atomic.Int32
		through := otherCA
		through.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			if dialled.Add(1) == 3 { // the attempts before were refused
				cancel()
			}
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
		s, err := New(through)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(ctx.Err(), context.Canceled) {
			t.Errorf("dialled %d times in a minute, want 3", dialled.Load())
		}
		select {
		case <-s.Ready():
			t.Fatal("Ready is closed with a client certificate of another authority, want it refused")
		default:
		}
	})
	t.Run("needs files that can be read", func(t *testing.T) {
		missing := cfg
		missing.CAFile = "/nowhere/ca.crt"
		s, err := New(missing)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Run(within(t)); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "/nowhere/ca.crt") {
			t.Fatalf("Run() with a missing CA file: error = %v, want NotExist with its path", err)
		}
	})
}
