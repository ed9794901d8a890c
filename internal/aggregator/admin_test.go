package aggregator

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/internal/pki"
	"portico.dev/internal/run"
)

// operator is a CA of an operator's own, and its files.
type operator struct {
	dir       string
	authority *pki.Authority
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	authority, err := pki.NewAuthority("the operator's")
	if err != nil {
		t.Fatal(err)
	}
	return &operator{t.TempDir(), authority}
}

func (o *operator) write(t *testing.T, name string, data []byte) string {
	t.Helper()
	name = filepath.Join(o.dir, name)
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func (o *operator) issue(t *testing.T, leaf pki.Leaf) (certPEM, keyPEM []byte) {
	t.Helper()
	certPEM, keyPEM, err := o.authority.Issue(leaf)
	if err != nil {
		t.Fatal(err)
	}
	return certPEM, keyPEM
}

// runReady runs a front door until it is ready, and returns its log.
func runReady(t *testing.T, c Config) (a *Aggregator, lines *observer.ObservedLogs, stop func()) {
	t.Helper()
	core, lines := observer.New(zap.InfoLevel)
	c.SecurePort, c.AccessLog, c.Embedded.Volatile = 0, false, true
	a, err := New(c, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	select {
	case <-a.Ready():
	case err := <-done:
		cancel()
		t.Fatal(err)
	case <-time.After(time.Minute):
		cancel()
		t.Fatal("the front door was not ready within a minute, want ready")
	}
	return a, lines, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestUntrustedAdminKubeconfigIsNotWritten(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	c := Default()
	c.DataDir = filepath.Join(t.TempDir(), "data")
	_, lines, stop := runReady(t, c)
	config, err := clientcmd.BuildConfigFromFlags("", c.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if code, body := get(t, config, "/api"); code != http.StatusOK || lines.FilterMessageSnippet("kubeconfig").Len() > 0 {
		t.Errorf("with our own CA: GET /api = %d %s, logged %v; want 200, no line about the kubeconfig", code, body, lines.All())
	}
	stop()

	// With another CA, the existing kubeconfig is removed.
	c.ClientCAFile = o.write(t, "clients.crt", o.authority.PEM())
	a, lines, stop := runReady(t, c)
	if _, err := os.Stat(c.AdminKubeconfig()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("admin.kubeconfig with another client CA: stat = %v, want %v", err, fs.ErrNotExist)
	}
	said := lines.FilterMessageSnippet("kubeconfig is not written").All()
	if len(said) != 1 || !strings.Contains(said[0].ContextMap()["error"].(string), "--client-ca-file") {
		t.Errorf("logged %v, want one line that names --client-ca-file", said)
	}
	if _, err := a.ClientConfig("alice", nil, time.Hour); err == nil || !strings.Contains(err.Error(), "--client-ca-file") {
		t.Errorf("ClientConfig = %v, want an error that names --client-ca-file", err)
	}
	if _, err := Kubeconfig(c.DataDir, "", "", "alice", nil, time.Hour); err == nil || !strings.Contains(err.Error(), "--client-ca-file") {
		t.Errorf("Kubeconfig = %v, want an error that names --client-ca-file", err)
	}
	certPEM, keyPEM := o.issue(t, pki.Leaf{CommonName: "root", Organizations: []string{pki.AdminGroup}, Client: true})
	theirs := &rest.Config{Host: a.URL(), TLSClientConfig: rest.TLSClientConfig{CAData: a.keys.Cluster().BundlePEM(), CertData: certPEM, KeyData: keyPEM}}
	if code, body := get(t, theirs, "/api"); code != http.StatusOK {
		t.Errorf("with a certificate of the operator's: GET /api = %d %s, want 200", code, body)
	}
	stop()

	// With both, it is there again.
	own, err := os.ReadFile(filepath.Join(c.DataDir, "pki", "client-ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	c.ClientCAFile = o.write(t, "both.crt", append(o.authority.PEM(), own...))
	_, _, stop = runReady(t, c)
	defer stop()
	if config, err = clientcmd.BuildConfigFromFlags("", c.AdminKubeconfig()); err != nil {
		t.Fatal(err)
	}
	if code, body := get(t, config, "/api"); code != http.StatusOK {
		t.Errorf("with both CAs: GET /api = %d %s, want 200", code, body)
	}
}

func TestKubeconfigVerifiesOperatorServingCertificate(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	certPEM, keyPEM := o.issue(t, pki.Leaf{CommonName: "api", DNSNames: []string{"api.example.com"}, Server: true})
	c := Default()
	c.DataDir = filepath.Join(t.TempDir(), "data")
	c.TLSCertFile, c.TLSPrivateKeyFile = o.write(t, "tls.crt", certPEM), o.write(t, "tls.key", keyPEM)
	c.RootCAFile = o.write(t, "ca.crt", o.authority.PEM())
	a, _, stop := runReady(t, c)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", c.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if code, body := get(t, config, "/api"); code != http.StatusOK {
		t.Errorf("admin.kubeconfig: GET /api = %d %s, want 200", code, body)
	}
	if config, err = a.ClientConfig("alice", []string{pki.AdminGroup}, time.Hour); err != nil {
		t.Fatal(err)
	}
	if code, body := get(t, config, "/api"); code != http.StatusOK {
		t.Errorf("ClientConfig: GET /api = %d %s, want 200", code, body)
	}
	data, err := Kubeconfig(c.DataDir, "", "", "bob", []string{pki.AdminGroup}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if config, err = clientcmd.RESTConfigFromKubeConfig(data); err != nil {
		t.Fatal(err)
	}
	if code, body := get(t, config, "/api"); code != http.StatusOK {
		t.Errorf("aggregator kubeconfig: GET /api = %d %s, want 200", code, body)
	}
}

func TestUnusableGeneratedCredentialsAreLogged(t *testing.T) {
	o := newOperator(t)
	authority := o.write(t, "ca.crt", o.authority.PEM())
	key, err := o.authority.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	keyFile := o.write(t, "ca.key", key)
	for name, test := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no flags":                   {func(*Config) {}, ""},
		"another front-proxy CA":     {func(c *Config) { c.RequestHeaderClientCAFile = authority }, "--proxy-client-cert-file"},
		"another front-proxy's name": {func(c *Config) { c.RequestHeaderAllowedNames = []string{"other"} }, "--proxy-client-cert-file"},
		"its own name":               {func(c *Config) { c.RequestHeaderAllowedNames = []string{pki.FrontProxyClientName} }, ""},
		"a signing CA that is not trusted": {func(c *Config) { c.Signing.All = KeyFiles{Cert: authority, Key: keyFile} },
			"client certificates of this signer will get 401"},
		"a signing CA that is trusted": {func(c *Config) {
			c.Signing.All, c.ClientCAFile = KeyFiles{Cert: authority, Key: keyFile}, authority
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			config := Default()
			config.DataDir, config.SecurePort = t.TempDir(), 0
			test.change(&config)
			core, lines := observer.New(zap.WarnLevel)
			p, err := prepare(t.Context(), &config, zap.NewNop())
			if err != nil {
				t.Fatal(err)
			}
			defer p.listener.Close()
			front, err := wire(config, p, zap.NewNop())
			if err != nil {
				t.Fatal(err)
			}
			front.log = zap.New(core)
			front.warnOfRefusedCredentials()
			got := lines.All()
			if test.want == "" && len(got) > 0 || test.want != "" && (len(got) == 0 || !strings.Contains(got[0].Message, test.want)) {
				t.Errorf("logged %v, want %q", got, test.want)
			}
		})
	}
}

func TestEphemeralWithForeignClientCAReturnsError(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	config := Default()
	config.SecurePort, config.AccessLog = 0, false
	config.ClientCAFile = o.write(t, "clients.crt", o.authority.PEM())
	_, err := Ephemeral(t.Context(), config, []string{"true"}, run.Stdio{}, nil, zap.NewNop())
	if err == nil || !strings.Contains(err.Error(), "--client-ca-file") {
		t.Errorf("Ephemeral = %v, want an error that names --client-ca-file", err)
	}
}
