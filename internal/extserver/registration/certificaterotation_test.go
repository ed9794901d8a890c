package registration

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"portico.dev/internal/pki"
)

const name = "metrics.kube-system.svc"

// shake does one handshake as a client that trusts bundle.
func shake(server *tls.Config, bundle []byte) error {
	config, err := pki.ClientConfig(pki.ClientOptions{ServerName: name, Roots: bundle})
	if err != nil {
		return err
	}
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	done := make(chan error, 1)
	go func() { done <- tls.Server(there, server).Handshake() }()
	err = tls.Client(here, config).Handshake()
	here.Close()
	<-done
	return err
}

// running returns a certificate whose Run runs until the test ends.
func running(t *testing.T, c CertificateConfig) *Certificate {
	t.Helper()
	s, err := NewCertificate(c)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-done)
	})
	return s
}

func TestTwoYearsOfRotationFailNoHandshake(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	synctest.Test(t, func(t *testing.T) {
		s := running(t, CertificateConfig{Names: []string{name}, Dir: t.TempDir()})
		server := pki.ServerConfig(s.KeyPair())
		// The front door receives a new bundle at once and applies it after 45 seconds.
		trusted := s.CABundle()
		var coming []byte
		var at time.Time
		bundles, began := 0, time.Now()
		for time.Since(began) < 2*365*24*time.Hour {
			pace := 24 * time.Hour
			select {
			case <-s.Changed():
				coming, at = s.CABundle(), time.Now().Add(45*time.Second)
				s.Published(coming)
				bundles++
			default:
			}
			if coming != nil {
				pace = 5 * time.Second
				if !time.Now().Before(at) {
					trusted, coming = coming, nil
				}
			}
			if err := shake(server, trusted); err != nil {
				t.Fatalf("handshake after %s failed: %v, want no error", time.Since(began), err)
			}
			time.Sleep(pace)
			synctest.Wait()
		}
		if bundles < 6 { // two complete replacements with three bundles each
			t.Errorf("%d bundles in two years, want at least 6", bundles)
		}
	})
}

func TestUnpublishedAuthorityDoesNotSign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := running(t, CertificateConfig{Names: []string{name}})
		first := s.CABundle()
		server := pki.ServerConfig(s.KeyPair())
		time.Sleep(300 * 24 * time.Hour)
		synctest.Wait()
		if bytes.Equal(s.CABundle(), first) {
			t.Fatal("bundle unchanged after two thirds of the lifetime of the first authority, want a new authority")
		}
		s.Published(first) // an old bundle, not the new one
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		must(t, shake(server, first))
		s.Published(s.CABundle())
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		must(t, shake(server, s.CABundle()))
		if shake(server, first) == nil {
			t.Error("handshake with the first bundle: error = nil, want an error after the second authority signs")
		}
	})
}

// due returns a state whose authority is old enough for its replacement. Certificates are backdated by five minutes.
func due(t *testing.T) state {
	t.Helper()
	authority, err := pki.NewAuthorityFor("old", 140*time.Second)
	must(t, err)
	return state{authority: authority}
}

// Uses sockets and real time. Clients that trust only the published bundle send requests on new and on kept connections without pause.
// They receive new bundles with a delay.
func TestAuthorityReplacementFailsNoRequest(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	dir := t.TempDir()
	old := due(t)
	must(t, old.save(dir))
	s, err := NewCertificate(CertificateConfig{Names: []string{name}, Dir: dir, Grace: graceOfClients, Overlap: graceOfClients})
	must(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	server.TLS = pki.ServerConfig(s.KeyPair())
	server.StartTLS()
	defer server.Close()

	var published atomic.Pointer[[]byte]
	publish := func(bundle []byte) { published.Store(&bundle) }
	publish(s.CABundle())
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	var requests, failures atomic.Int64
	for i := range 4 {
		group.Go(func() { ask(ctx, server.Listener.Addr().String(), i%2 == 0, &published, &requests, &failures) })
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	// The bundles in order: old and new; new and old, where the old authority no longer signs; new only.
	for range 3 {
		select {
		case <-s.Changed():
		case <-time.After(time.Minute):
			t.Fatal("bundle did not change within a minute, want the next one of three bundles")
		}
		bundle := s.CABundle()
		late := time.NewTimer(300 * time.Millisecond)
		<-late.C
		publish(bundle)
		s.Published(bundle)
	}
	before := requests.Load()
	for deadline := time.Now().Add(30 * time.Second); requests.Load() < before+20; {
		if time.Now().After(deadline) {
			t.Fatalf("clients sent %d requests since the last bundle within 30 seconds, want 20", requests.Load()-before)
		}
		<-time.After(5 * time.Millisecond)
	}
	cancel()
	must(t, <-done)
	group.Wait()
	if failures.Load() > 0 {
		t.Errorf("%d of %d requests failed, want 0", failures.Load(), requests.Load())
	}
	if bytes.Contains(s.CABundle(), old.authority.PEM()) {
		t.Error("bundle contains the old authority after its replacement, want only the new one")
	}
}

// graceOfClients is the time for which a client may use the previous bundle after a publication.
const graceOfClients = 2 * time.Second

func ask(ctx context.Context, address string, keep bool, published *atomic.Pointer[[]byte], requests, failures *atomic.Int64) {
	var transport *http.Transport
	var trusted *[]byte
	defer func() { transport.CloseIdleConnections() }()
	for ctx.Err() == nil {
		began := time.Now()
		if now := published.Load(); now != trusted {
			if transport != nil {
				transport.CloseIdleConnections()
			}
			config, err := pki.ClientConfig(pki.ClientOptions{ServerName: name, Roots: *now})
			if err != nil {
				failures.Add(1)
				return
			}
			trusted, transport = now, &http.Transport{TLSClientConfig: config, DisableKeepAlives: !keep, ForceAttemptHTTP2: true}
		}
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address, nil)
		answer, err := transport.RoundTrip(r)
		if ctx.Err() != nil {
			if err == nil {
				answer.Body.Close()
			}
			return
		}
		requests.Add(1)
		if err != nil {
			// A busy machine can hold up a client for longer than the grace period. The client then uses the previous bundle.
			if published.Load() == trusted || time.Since(began) < graceOfClients {
				failures.Add(1)
			}
			continue
		}
		answer.Body.Close()
	}
}

func TestRestartKeepsCertificateAndBundle(t *testing.T) {
	dir := t.TempDir()
	config := CertificateConfig{Names: []string{name}, Dir: dir}
	first, err := NewCertificate(config)
	must(t, err)
	second, err := NewCertificate(config)
	must(t, err)
	if first.KeyPair().Fingerprint() != second.KeyPair().Fingerprint() || !bytes.Equal(first.CABundle(), second.CABundle()) {
		t.Error("certificate or bundle changed after a restart, want both unchanged")
	}
	for file, mode := range map[string]os.FileMode{stateFile: 0o600, bundleFile: 0o644} {
		info, err := os.Stat(filepath.Join(dir, file))
		must(t, err)
		if info.Mode().Perm() != mode {
			t.Errorf("mode of %s = %o, want %o", file, info.Mode().Perm(), mode)
		}
	}
	config.Names = []string{name, "another.example.com"}
	renamed, err := NewCertificate(config)
	must(t, err)
	if renamed.KeyPair().Leaf().VerifyHostname("another.example.com") != nil || !bytes.Equal(first.CABundle(), renamed.CABundle()) {
		t.Error("certificate for a new name does not verify or its bundle changed, want a new certificate by the same authority")
	}
	must(t, os.RemoveAll(dir))
	lost, err := NewCertificate(config)
	must(t, err)
	must(t, shake(pki.ServerConfig(lost.KeyPair()), lost.CABundle()))
}

func TestRestartDuringReplacementKeepsNextAuthority(t *testing.T) {
	dir := t.TempDir()
	st := due(t)
	next, err := pki.NewAuthorityFor("new", time.Hour)
	must(t, err)
	st.next = next
	must(t, st.save(dir))
	s, err := NewCertificate(CertificateConfig{Names: []string{name}, Dir: dir})
	must(t, err)
	must(t, shake(pki.ServerConfig(s.KeyPair()), st.authority.PEM()))
	if !contains(s.CABundle(), next.Certificate) {
		t.Error("bundle after a restart lacks the next authority, want it kept")
	}
}

func TestAuthorityExpiredWhileStoppedIsReplaced(t *testing.T) {
	dir := t.TempDir()
	ended, err := pki.NewAuthorityFor("ended", -time.Minute)
	must(t, err)
	st := state{authority: ended}
	must(t, st.save(dir))
	s, err := NewCertificate(CertificateConfig{Names: []string{name}, Dir: dir})
	must(t, err)
	must(t, shake(pki.ServerConfig(s.KeyPair()), s.CABundle()))
}

func TestInvalidStateFilesAreRejected(t *testing.T) {
	good := due(t)
	for _, c := range []struct {
		situation, want string
		spoil           func(t *testing.T, file string)
	}{
		{"keys that everybody may read", "take its keys for stolen", func(t *testing.T, file string) { must(t, os.Chmod(file, 0o644)) }},
		{"half a file", "restore it, or remove it", func(t *testing.T, file string) { must(t, os.Truncate(file, 100)) }},
		{"no PEM in it", "authority", func(t *testing.T, file string) { must(t, os.WriteFile(file, []byte("{}"), 0o600)) }},
	} {
		t.Run(c.situation, func(t *testing.T) {
			dir := t.TempDir()
			must(t, good.save(dir))
			c.spoil(t, filepath.Join(dir, stateFile))
			if _, err := NewCertificate(CertificateConfig{Names: []string{name}, Dir: dir}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want it to say %q", err, c.want)
			}
		})
	}
}

func TestFailedSaveKeepsPreviousState(t *testing.T) {
	dir := t.TempDir()
	st := due(t)
	must(t, st.save(dir))
	s, err := NewCertificate(CertificateConfig{Names: []string{name}, Dir: dir})
	must(t, err)
	before := s.CABundle()
	s.config.Dir = filepath.Join(dir, stateFile) // A file in place of a directory makes every write fail.
	if _, err := s.step(); err == nil {
		t.Fatal("step with an unwritable directory: error = nil, want an error")
	}
	if !bytes.Equal(s.CABundle(), before) {
		t.Error("bundle changed although the new state could not be saved, want it unchanged")
	}
}
