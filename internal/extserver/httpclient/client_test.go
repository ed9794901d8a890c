package httpclient

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"portico.dev/internal/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers over TLS with a certificate issued by ca.
func serve(t *testing.T, ca *pki.Authority, h http.HandlerFunc) string {
	t.Helper()
	cert, key, err := ca.Issue(pki.Leaf{CommonName: "server", Server: true, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	must(t, err)
	pair, err := pki.StaticKeyPair(cert, key)
	must(t, err)
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Listener = tls.NewListener(s.Listener, pki.ServerConfig(pair)) // StartTLS would put its own certificate first.
	s.Start()
	t.Cleanup(s.Close)
	return "https://" + s.Listener.Addr().String()
}

func authority(t *testing.T) *pki.Authority {
	t.Helper()
	ca, err := pki.NewAuthority("test")
	must(t, err)
	return ca
}

func client(t *testing.T, c Config) *Client {
	t.Helper()
	out, err := New(c)
	must(t, err)
	t.Cleanup(out.Close)
	return out
}

func echo(w http.ResponseWriter, r *http.Request) {
	name := "nobody"
	if len(r.TLS.PeerCertificates) > 0 {
		name = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	_, _ = io.WriteString(w, name+" "+r.Header.Get("Authorization")+" "+r.Header.Get("X-Scope-OrgID"))
}

func TestClientSendsItsCredentials(t *testing.T) {
	ca := authority(t)
	address := serve(t, ca, echo)
	cert, key, err := ca.Issue(pki.Leaf{CommonName: "us", Client: true})
	must(t, err)
	token := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(token, []byte("first\n"), 0o600))
	trusting := TLS{CA: ca.PEM()}
	for _, c := range []struct {
		situation string
		config    Config
		want      string
	}{
		{"nobody", Config{TLS: trusting}, "nobody  "},
		{"a token", Config{TLS: trusting, BearerToken: "t"}, "nobody Bearer t "},
		{"a token from a file", Config{TLS: trusting, BearerTokenFile: token, BearerToken: "t"}, "nobody Bearer first "},
		{"a password", Config{TLS: trusting, Username: "u", Password: "p"}, "nobody Basic dTpw "},
		{"a header", Config{TLS: trusting, Header: http.Header{"x-scope-orgid": {"team"}}}, "nobody  team"},
		{"a certificate", Config{TLS: TLS{CA: ca.PEM(), Cert: cert, Key: key}}, "us  "},
		{"insecure", Config{TLS: TLS{Insecure: true}}, "nobody  "},
	} {
		t.Run(c.situation, func(t *testing.T) {
			answer, err := client(t, c.config).Get(t.Context(), address, "", 100)
			must(t, err)
			if string(answer.Body) != c.want {
				t.Errorf("response = %q, want %q", answer.Body, c.want)
			}
		})
	}
	follower := client(t, Config{TLS: trusting, BearerTokenFile: token})
	must(t, os.WriteFile(token, []byte("second"), 0o600))
	if answer, err := follower.Get(t.Context(), address, "", 100); err != nil || string(answer.Body) != "nobody Bearer second " {
		t.Errorf("Get with a renewed token = %v, error %v, want the token \"second\"", answer, err)
	}
	must(t, os.WriteFile(token, nil, 0o600))
	if _, err := follower.Get(t.Context(), address, "", 100); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("Get with an empty token file: error = %v, want an error that contains \"empty\"", err)
	}
}

func TestUntrustedServerCertificateIsRejected(t *testing.T) {
	address := serve(t, authority(t), echo)
	if _, err := client(t, Config{TLS: TLS{CA: authority(t).PEM()}}).Get(t.Context(), address, "", 100); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("Get from an untrusted server: error = %v, want an error that contains \"certificate\"", err)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	ca := authority(t)
	other := serve(t, ca, func(http.ResponseWriter, *http.Request) { t.Error("redirect target received a request, want none") })
	address := serve(t, ca, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other, http.StatusFound) })
	answer, err := client(t, Config{TLS: TLS{CA: ca.PEM()}, BearerToken: "t"}).Get(t.Context(), address, "", 1000)
	must(t, err)
	if answer.Code != http.StatusFound {
		t.Errorf("status of a redirect = %d, want 302", answer.Code)
	}
}

func TestOversizedResponseIsRejected(t *testing.T) {
	ca := authority(t)
	address := serve(t, ca, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 101)) })
	c := client(t, Config{TLS: TLS{CA: ca.PEM()}})
	if _, err := c.Get(t.Context(), address, "", 100); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Get of a response over the limit: error = %v, want ErrTooLarge", err)
	}
	if answer, err := c.Get(t.Context(), address, "", 101); err != nil || len(answer.Body) != 101 {
		t.Errorf("Get of a response at the limit: error = %v, want 101 bytes", err)
	}
}

func TestChangedCAFileIsReloaded(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		name = filepath.Join(dir, name)
		must(t, os.WriteFile(name, data, 0o600))
		return name
	}
	first, second := authority(t), authority(t)
	synctest.Test(t, func(t *testing.T) {
		p, err := newPool(TLS{CAFile: write("ca", first.PEM())}, nil)
		must(t, err)
		before := p.current()
		write("ca", second.PEM())
		if p.current() != before {
			t.Error("pool changed before the reread interval, want the same pool")
		}
		time.Sleep(rereadInterval)
		renewed := p.current()
		if renewed == before {
			t.Error("pool is unchanged after the CA was renewed, want a new pool")
		}
		write("ca", []byte("no PEM"))
		time.Sleep(rereadInterval)
		if p.current() != renewed {
			t.Error("pool changed after the CA file became invalid, want the last valid pool")
		}
		must(t, os.Remove(filepath.Join(dir, "ca")))
		time.Sleep(rereadInterval)
		if p.current() != renewed {
			t.Error("pool changed after the CA file was removed, want the last valid pool")
		}
		p.close()
	})
}

func TestInvalidConfigsAreRejected(t *testing.T) {
	ca := authority(t)
	cert, _, err := ca.Issue(pki.Leaf{CommonName: "us", Client: true})
	must(t, err)
	for situation, c := range map[string]Config{
		"a certificate without a key":    {TLS: TLS{Cert: cert}},
		"a CA that is no PEM":            {TLS: TLS{CA: []byte("x")}},
		"a CA file that is not there":    {TLS: TLS{CAFile: "/nothing"}},
		"a token file that is not there": {BearerTokenFile: "/nothing"},
		"a key that is no key":           {TLS: TLS{Cert: cert, Key: cert}},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("New with %s: error = nil, want an error", situation)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
