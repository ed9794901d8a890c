package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func authority(t *testing.T, name string) *Authority {
	t.Helper()
	a, err := NewAuthority(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t *testing.T, a *Authority, l Leaf) *KeyPair {
	t.Helper()
	certPEM, keyPEM, err := a.Issue(l)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := StaticKeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// handshake connects a client with the given options to a server with the given pair, and returns the chain
// that the client presented.
func handshake(t *testing.T, server *KeyPair, options ClientOptions) ([]*x509.Certificate, error) {
	t.Helper()
	clientConfig, err := ClientConfig(options)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", ServerConfig(server))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	type outcome struct {
		chain []*x509.Certificate
		err   error
	}
	served := make(chan outcome, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			served <- outcome{err: err}
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		srv := conn.(*tls.Conn)
		err = srv.Handshake()
		served <- outcome{srv.ConnectionState().PeerCertificates, err}
	}()
	client, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", listener.Addr().String(), clientConfig)
	o := <-served
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return o.chain, o.err
}

func TestMutualTLSHandshake(t *testing.T) {
	cluster, clients, other := authority(t, "cluster"), authority(t, "clients"), authority(t, "other")
	server := issue(t, cluster, Leaf{CommonName: "server", DNSNames: []string{"a.b.svc"}, Server: true})
	alice := issue(t, clients, Leaf{CommonName: "alice", Organizations: []string{"dev"}, Client: true})
	for name, c := range map[string]struct {
		options ClientOptions
		refused string
	}{
		"right name and authority": {ClientOptions{ServerName: "a.b.svc", Roots: cluster.PEM(), Certificate: alice}, ""},
		"wrong name":               {ClientOptions{ServerName: "x.y.svc", Roots: cluster.PEM()}, "not x.y.svc"},
		"wrong authority":          {ClientOptions{ServerName: "a.b.svc", Roots: other.PEM()}, "unknown authority"},
		"insecure by registration": {ClientOptions{ServerName: "x.y.svc", Insecure: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			chain, err := handshake(t, server, c.options)
			switch {
			case c.refused == "" && err != nil:
				t.Fatal(err)
			case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
				t.Fatalf("handshake error = %v, want an error that contains %q", err, c.refused)
			}
			if c.options.Certificate != nil && (len(chain) != 1 || chain[0].Subject.CommonName != "alice") {
				t.Errorf("chain at the server = %v, want the certificate of alice", chain)
			}
		})
	}
}

func TestVerifyClient(t *testing.T) {
	clients, other := authority(t, "clients"), authority(t, "other")
	bundle, err := StaticBundle(clients.PEM())
	if err != nil {
		t.Fatal(err)
	}
	chain := func(a *Authority, l Leaf) []*x509.Certificate {
		return []*x509.Certificate{issue(t, a, l).Leaf()}
	}
	expired := chain(clients, Leaf{CommonName: "a", Client: true, TTL: time.Nanosecond})
	for name, c := range map[string]struct {
		chain   []*x509.Certificate
		refused string
	}{
		"a client":                       {chain(clients, Leaf{CommonName: "a", Client: true}), ""},
		"no certificate":                 {nil, "no client certificate"},
		"a server's certificate":         {chain(clients, Leaf{CommonName: "a", Server: true}), "incompatible key usage"},
		"another authority's":            {chain(other, Leaf{CommonName: "a", Client: true}), "unknown authority"},
		"expired client certificate":     {expired, "expired"},
		"the authority itself, no usage": {[]*x509.Certificate{other.Certificate}, "unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			err := bundle.VerifyClient(c.chain)
			if c.refused == "" && err != nil {
				t.Error(err)
			}
			if c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
				t.Errorf("VerifyClient error = %v, want an error that contains %q", err, c.refused)
			}
		})
	}
}

// A verified chain remains valid until it expires, or the authority is removed. Other chains are verified separately.
func TestVerifiedChainIsCachedWhileValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, other := authority(t, "clients"), authority(t, "other")
		bundle, err := StaticBundle(clients.PEM())
		if err != nil {
			t.Fatal(err)
		}
		alice := []*x509.Certificate{issue(t, clients, Leaf{CommonName: "alice", Client: true, TTL: time.Hour}).Leaf()}
		mallory := []*x509.Certificate{issue(t, other, Leaf{CommonName: "alice", Client: true, TTL: time.Hour}).Leaf()}
		verify := func(chain []*x509.Certificate, refused string) {
			t.Helper()
			err := bundle.VerifyClient(chain)
			if refused == "" && err != nil || refused != "" && (err == nil || !strings.Contains(err.Error(), refused)) {
				t.Errorf("VerifyClient error = %v, want %q", err, refused)
			}
		}
		for range 100 { // afterwards alice's chain is one of the recent ones
			verify(alice, "")
			verify(mallory, "unknown authority")
			verify(append(slices.Clone(mallory), alice...), "unknown authority")
			verify(append(slices.Clone(alice), mallory...), "")
		}
		if state := bundle.current.Load(); !state.remembers(alice, time.Now()) || state.remembers(mallory, time.Now()) {
			t.Error("remembered chains: want alice's and not mallory's")
		}
		time.Sleep(time.Hour - time.Second)
		verify(alice, "")
		if err := bundle.Set(other.PEM()); err != nil {
			t.Fatal(err)
		}
		verify(alice, "unknown authority")
		verify(mallory, "")
		if err := bundle.Set(append(clients.PEM(), other.PEM()...)); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			verify(alice, "")
		}
		time.Sleep(2 * time.Second)
		verify(alice, "expired")
		verify(mallory, "expired")
	})
}

// BenchmarkVerifyClient measures a first verification, which costs as much as the rest of a request, and a cached one.
func BenchmarkVerifyClient(b *testing.B) {
	clients, err := NewAuthority("clients")
	if err != nil {
		b.Fatal(err)
	}
	bundle, err := StaticBundle(clients.PEM())
	if err != nil {
		b.Fatal(err)
	}
	cert, key, err := clients.Issue(Leaf{CommonName: "alice", Client: true})
	if err != nil {
		b.Fatal(err)
	}
	pair, err := StaticKeyPair(cert, key)
	if err != nil {
		b.Fatal(err)
	}
	chain := []*x509.Certificate{pair.Leaf()}
	b.Run("remembered", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := bundle.VerifyClient(chain); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("new", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			state := bundle.current.Load()
			state.verified.Purge()
			for i := range state.recent {
				state.recent[i].Store(nil)
			}
			if err := bundle.VerifyClient(chain); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func TestInvalidBundleKeepsPreviousBundle(t *testing.T) {
	a := authority(t, "a")
	for name, bad := range map[string]string{
		"empty":             "",
		"garbage":           "hello",
		"a key":             "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
		"a broken block":    "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
		"good and then bad": string(a.PEM()) + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
		"far too large":     strings.Repeat("x", MaxPEMBytes+1),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := StaticBundle([]byte(bad)); err == nil {
				t.Error("StaticBundle of a bad bundle succeeded, want an error")
			}
			b, err := StaticBundle(a.PEM())
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Set([]byte(bad)); err == nil {
				t.Error("Set of a bad bundle succeeded, want an error")
			}
			if len(b.Certificates()) != 1 {
				t.Errorf("%d certificates after a bad Set, want the last good one", len(b.Certificates()))
			}
		})
	}
}

// awaited polls a condition that depends on a file watcher.
func awaited(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // without inotify instances, files are read every minute
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not reached within 3 minutes: %s, want it to be true", what)
		}
	}
}

func TestChangedFilesAreReloaded(t *testing.T) {
	dir := t.TempDir()
	a := authority(t, "a")
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	put := func(certPEM, keyPEM []byte) {
		t.Helper()
		if err := errors.Join(WriteFile(keyFile, keyPEM, 0o600), WriteFile(certFile, certPEM, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	certPEM, keyPEM, err := a.Issue(Leaf{CommonName: "one", Server: true})
	if err != nil {
		t.Fatal(err)
	}
	put(certPEM, keyPEM)
	pair, err := LoadKeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- pair.Run(ctx, zap.NewNop()) }()

	two, twoKey, err := a.Issue(Leaf{CommonName: "two", Server: true})
	if err != nil {
		t.Fatal(err)
	}
	awaited(t, "the new certificate is served", func() bool {
		put(two, twoKey) // repeatedly: the first change may precede the watcher
		touch(t, certFile)
		return pair.Leaf().Subject.CommonName == "two"
	})
	awaited(t, "a key that does not match is reported", func() bool {
		put(certPEM, twoKey)
		touch(t, certFile)
		return pair.Stale() != nil
	})
	if pair.Leaf().Subject.CommonName != "two" {
		t.Errorf("common name after a bad change = %s, want two", pair.Leaf().Subject.CommonName)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func touch(t *testing.T, file string) {
	t.Helper()
	now := time.Now()
	if err := os.Chtimes(file, now, now); err != nil {
		t.Fatal(err)
	}
}

func TestExistingKeysAreReused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	serving := Leaf{CommonName: "portico", DNSNames: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}
	open := func() map[string]string {
		t.Helper()
		if _, err := OpenDirectory(dir, serving); err != nil {
			t.Fatal(err)
		}
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		content := map[string]string{}
		for _, f := range files {
			data, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			content[f.Name()] = string(data)
			info, _ := f.Info()
			if strings.HasSuffix(f.Name(), ".key") && info.Mode().Perm() != 0o600 {
				t.Errorf("mode of %s = %v, want 0600", f.Name(), info.Mode())
			}
		}
		return content
	}
	first := open()
	if len(first) != 13 {
		t.Errorf("%d files in a new directory: %v, want 13", len(first), first)
	}
	second := open()
	for name := range first {
		if first[name] != second[name] {
			t.Errorf("contents of %s changed at the second start, want them unchanged", name)
		}
	}
	serving.DNSNames = append(serving.DNSNames, "front.example.com")
	third := open()
	for name := range first {
		if changed := first[name] != third[name]; changed != strings.HasPrefix(name, "serving.") {
			t.Errorf("%s changed for a new server name = %v, want changes only in serving files", name, changed)
		}
	}
	if err := os.Remove(filepath.Join(dir, "client-ca.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDirectory(dir, serving); err == nil || !strings.Contains(err.Error(), "restore the key") {
		t.Errorf("OpenDirectory without the key of an authority error = %v, want an error that contains restore the key", err)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode of the directory = %v, %v, want 0700", info.Mode(), err)
	}
}

func TestLeafExpiresNoLaterThanItsCA(t *testing.T) {
	a := authority(t, "a")
	leaf := issue(t, a, Leaf{CommonName: "x", Client: true, TTL: 2 * AuthorityTTL}).Leaf()
	if leaf.NotAfter.After(a.Certificate.NotAfter) {
		t.Errorf("expiry of the leaf = %v, want at most %v as of the authority", leaf.NotAfter, a.Certificate.NotAfter)
	}
	if _, _, err := a.Issue(Leaf{CommonName: "x"}); err == nil {
		t.Error("Issue of a leaf without a usage succeeded, want an error")
	}
}

// A start that is killed while it writes a file leaves a temporary file, which may contain a key.
func TestTemporaryFilesOfInterruptedStartAreRemoved(t *testing.T) {
	dir := t.TempDir()
	old, young := filepath.Join(dir, ".ca.key.123456"), filepath.Join(dir, ".ca.key.654321")
	for _, name := range []string{old, young} {
		if err := os.WriteFile(name, []byte("half a key"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now().Add(-2 * leftoverAge)
	if err := os.Chtimes(old, before, before); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDirectory(dir, Leaf{CommonName: "portico"}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(old); !os.IsNotExist(err) {
		t.Errorf("Lstat of an old temporary file error = %v, want it removed", err)
	}
	if _, err := os.Lstat(young); err != nil {
		t.Errorf("Lstat of a recent temporary file error = %v, want it kept", err)
	}
}
