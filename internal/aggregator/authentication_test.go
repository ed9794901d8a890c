package aggregator

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func TestInvalidAuthenticationSettingsAreRejected(t *testing.T) {
	for name, c := range map[string]struct{ args, refused string }{
		"an issuer by flags": {"--oidc-issuer-url https://a --oidc-client-id b --oidc-required-claim c=d --oidc-required-claim e=f", ""},
		"a file":             {"--authentication-config a.yaml", ""},
		"a webhook":          {"--authentication-token-webhook-config-file a --authentication-token-webhook-version v1", ""},
		"file and flags":     {"--authentication-config a.yaml --oidc-issuer-url https://a --oidc-client-id b", "--authentication-config: excludes --oidc-issuer-url"},
		"no client":          {"--oidc-issuer-url https://a", "--oidc-client-id"},
		"no issuer":          {"--oidc-groups-claim groups", "--oidc-issuer-url"},
		"B1 a symmetric algorithm": {"--oidc-issuer-url https://a --oidc-client-id b --oidc-signing-algs HS256",
			`--oidc-signing-algs: "HS256" is none of`},
		"another version":    {"--authentication-token-webhook-version v2", "--authentication-token-webhook-version"},
		"less than no time":  {"--authentication-token-webhook-cache-ttl -1s", "--authentication-token-webhook-cache-ttl"},
		"no extended tokens": {"--service-account-extend-token-expiration=false", ""},
		"the shortest bound": {"--service-account-max-token-expiration=1h", ""},
		"the longest bound":  {"--service-account-max-token-expiration=4294967296s", ""},
		"a bound too short":  {"--service-account-max-token-expiration=59m", "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds"},
		"a bound too long":   {"--service-account-max-token-expiration=4294967297s", "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds"},
	} {
		t.Run(name, func(t *testing.T) {
			config := Default()
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			config.AddFlags(fs)
			if err := fs.Parse(strings.Fields(c.args)); err != nil {
				t.Fatal(err)
			}
			err := config.Validate()
			if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Fatalf("Validate(%q) error = %v, want %q", c.args, err, c.refused)
			}
		})
	}
}

func TestWorldReadablePrivateKeysAreRejected(t *testing.T) {
	key := filepath.Join(t.TempDir(), "tls.key")
	if err := os.WriteFile(key, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	for flag, set := range map[string]func(*Config){
		"--tls-private-key-file":  func(c *Config) { c.TLSCertFile, c.TLSPrivateKeyFile = "a", key },
		"--proxy-client-key-file": func(c *Config) { c.ProxyClientCertFile, c.ProxyClientKeyFile = "a", key },
		"--etcd-keyfile":          func(c *Config) { c.EtcdCertFile, c.EtcdKeyFile = "a", key },
	} {
		t.Run(flag, func(t *testing.T) {
			c := Default()
			c.DataDir, c.SecurePort = t.TempDir(), 0
			set(&c)
			_, err := prepare(t.Context(), &c, zap.NewNop())
			if err == nil || !strings.Contains(err.Error(), flag) || !strings.Contains(err.Error(), "chmod 600 "+key) {
				t.Fatalf("prepare with a readable %s: error = %v, want an error that names the flag and chmod 600", flag, err)
			}
		})
	}
}

// TestAuthenticationReviewRightsAreEnforced: rows B13 to B15 on a front door as it is run.
func TestAuthenticationReviewRightsAreEnforced(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	dir := t.TempDir()
	admin, stop := open(t, dir, func(c *Config) {
		c.TokenAuthFile = filepath.Join(t.TempDir(), "tokens.csv")
		if err := os.WriteFile(c.TokenAuthFile, []byte("canary-token,tina,u-1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	clientOf := func(config *rest.Config) kubernetes.Interface {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	as := func(token string) *rest.Config {
		c := rest.AnonymousClientConfig(admin)
		c.BearerToken = token
		return c
	}
	review := func(client kubernetes.Interface, token string) (*authenticationv1.TokenReview, error) {
		return client.AuthenticationV1().TokenReviews().Create(t.Context(),
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	}
	t.Run("B14 a right is needed to have tokens and rights reviewed", func(t *testing.T) {
		tina := clientOf(as("canary-token"))
		if _, err := review(tina, "canary-token"); !apierrors.IsForbidden(err) {
			t.Errorf("TokenReview of a user without the right = %v, want Forbidden", err)
		}
		_, err := tina.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: "kubernetes-admin", NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/", Verb: "get"}},
		}, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("SubjectAccessReview of a user without the right = %v, want Forbidden", err)
		}
	})
	t.Run("B14 whoever has it learns of the token in hand and no other", func(t *testing.T) {
		good, err := review(clientOf(admin), "canary-token")
		if err != nil || !good.Status.Authenticated || good.Status.User.Username != "tina" {
			t.Errorf("TokenReview of a valid token = %+v, %v; want the user tina", good, err)
		}
		bad, err := review(clientOf(admin), "canary-toke")
		if err != nil || bad.Status.Authenticated || strings.Contains(bad.Status.Error, "canary") {
			t.Errorf("TokenReview of an invalid token = %+v, %v; want unauthenticated and no token in the error", bad.Status, err)
		}
	})
	t.Run("B14 rights are reviewed for the user that is written there, and groups of that name only", func(t *testing.T) {
		got, err := clientOf(admin).AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:masters", Extra: map[string]authorizationv1.ExtraValue{"groups": {"system:masters"}},
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "delete", Resource: "secrets"}},
		}, metav1.CreateOptions{})
		if err != nil || got.Status.Allowed {
			t.Fatalf("SubjectAccessReview of system:masters with extra groups = %+v, %v; want not allowed", got.Status, err)
		}
	})
	t.Run("B13 nobody from outside is the front door itself", func(t *testing.T) {
		for name, config := range map[string]*rest.Config{
			"no credential":                    rest.AnonymousClientConfig(admin),
			"a token that names it":            as(self.Name),
			"identity headers that name it":    withHeaders(rest.AnonymousClientConfig(admin), http.Header{"X-Remote-User": {self.Name}, "X-Remote-Group": {"system:masters"}}),
			"identity headers beside a token":  withHeaders(as("canary-token"), http.Header{"X-Remote-User": {self.Name}, "X-Remote-Group": {"system:masters"}}),
			"a name that only is for insiders": withHeaders(as("canary-token"), http.Header{"Impersonate-User": {self.Name}}),
		} {
			if code, _ := get(t, config, "/api/v1/secrets"); code != http.StatusForbidden && code != http.StatusUnauthorized {
				t.Errorf("%s: status of GET /api/v1/secrets = %d, want 403 or 401", name, code)
			}
		}
	})
	t.Run("B13 what is in the data directory is for its owner", func(t *testing.T) {
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".key") && !strings.HasSuffix(path, "kubeconfig") {
				return err
			}
			info, err := d.Info()
			if err == nil && info.Mode().Perm()&0o077 != 0 {
				t.Errorf("mode of %s = %s, want no permissions for group and world", path, info.Mode())
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	t.Run("B15 the kubeconfig that is written verifies the server", func(t *testing.T) {
		c, err := clientcmd.LoadFromFile(filepath.Join(dir, "admin.kubeconfig"))
		if err != nil {
			t.Fatal(err)
		}
		for name, cluster := range c.Clusters {
			if cluster.InsecureSkipTLSVerify || len(cluster.CertificateAuthorityData) == 0 {
				t.Errorf("cluster %s of admin.kubeconfig = %+v, want a CA and verification", name, cluster)
			}
		}
	})
	t.Run("what became of credentials is counted, and no token is in a metric", func(t *testing.T) {
		_, text := get(t, admin, "/metrics")
		for _, want := range []string{`authentication_attempts{result="success"}`, `authentication_attempts{result="error"}`,
			`authenticated_user_requests{username="other"}`, `portico_trust_stale{file="client-ca-file"} 0`} {
			if !strings.Contains(text, want) {
				t.Errorf("/metrics has no %s, want one", want)
			}
		}
		if strings.Contains(text, "canary") {
			t.Error("/metrics contains a token, want none")
		}
	})
}

// withHeaders adds headers to every request of c's clients.
func withHeaders(c *rest.Config, headers http.Header) *rest.Config {
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return headerTripper{next, headers}
	})
	return c
}

type headerTripper struct {
	next    http.RoundTripper
	headers http.Header
}

func (h headerTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, values := range h.headers {
		r.Header[name] = values
	}
	return h.next.RoundTrip(r)
}
