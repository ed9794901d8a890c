package tokenwebhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"portico.dev/internal/auth/authn"
	"portico.dev/internal/auth/authtest"
	"portico.dev/internal/metrics"
	"portico.dev/internal/request"
)

// reviewer is a token review server with real TLS. The token determines its response.
type reviewer struct {
	*authtest.Server
	asked   atomic.Int32
	version atomic.Value // the apiVersion of the last review
	hold    chan struct{}
}

func serve(t *testing.T) *reviewer {
	t.Helper()
	s := &reviewer{hold: make(chan struct{})}
	s.Server = authtest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		s.version.Store(review.APIVersion)
		status := &review.Status
		switch token := review.Spec.Token; {
		case strings.HasPrefix(token, "hang"):
			select {
			case <-r.Context().Done():
				panic(http.ErrAbortHandler) // an empty response could still arrive
			case <-s.hold:
			}
		case strings.HasPrefix(token, "bad"):
			status.Error = "it was revoked"
		case strings.HasPrefix(token, "fail"):
			w.WriteHeader(http.StatusForbidden)
			return
		case strings.HasPrefix(token, "nameless"):
			status.Authenticated = true
		case strings.HasPrefix(token, "for-ext"):
			status.Authenticated, status.Audiences = true, []string{"ext"}
			status.User.Username = "ann"
		case strings.HasPrefix(token, "known"), strings.Count(token, ".") == 2:
			status.Authenticated = true
			status.User = authenticationv1.UserInfo{Username: "ann", UID: "u-1", Groups: []string{"dev"},
				Extra: map[string]authenticationv1.ExtraValue{"a": {"b"}}}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	return s
}

// kubeconfig names s. change may make it invalid.
func (s *reviewer) kubeconfig(t *testing.T, change ...func(*clientcmdapi.Cluster)) string {
	t.Helper()
	cluster := &clientcmdapi.Cluster{Server: s.URL + "/review", CertificateAuthorityData: s.RootPEM}
	for _, c := range change {
		c(cluster)
	}
	config := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": cluster}, AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {}},
		Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	}
	name := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(config, name); err != nil {
		t.Fatal(err)
	}
	return name
}

func open(t *testing.T, s *reviewer, change ...func(*Config)) *Webhook {
	t.Helper()
	cfg := Config{File: s.kubeconfig(t), CacheTTL: 2 * time.Minute, Audiences: []string{"api"}, Metrics: metrics.NewAuth(prometheus.NewRegistry())}
	for _, c := range change {
		c(&cfg)
	}
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

func TestReviewResultsAreReturned(t *testing.T) {
	s := serve(t)
	for _, version := range []string{"v1", "v1beta1"} {
		w := open(t, s, func(c *Config) { c.Version = version })
		for name, tt := range map[string]struct{ token, want, wantErr string }{
			"a token that it knows":           {token: "known", want: "ann"},
			"one that it does not":            {token: "stranger"},
			"one that it calls bad":           {token: "bad", wantErr: "it was revoked"},
			"it fails":                        {token: "fail", wantErr: "webhook"},
			"a user without a name":           {token: "nameless", wantErr: "empty user name"},
			"B7 a token that is far too long": {token: strings.Repeat("x", authn.MaxTokenBytes+1), wantErr: "invalid bearer token"},
		} {
			t.Run(version+" "+name, func(t *testing.T) {
				response, ok, err := w.AuthenticateToken(t.Context(), tt.token)
				switch {
				case tt.wantErr != "":
					if err == nil || !strings.Contains(err.Error(), tt.wantErr) || strings.Contains(err.Error(), tt.token+" ") {
						t.Fatalf("AuthenticateToken error = %v, want an error that contains %q, without the token", err, tt.wantErr)
					}
				case err != nil || ok != (tt.want != ""):
					t.Fatalf("AuthenticateToken(%q) = %t, %v, want user %q", tt.token, ok, err, tt.want)
				case ok && (response.User.GetName() != tt.want || !reflect.DeepEqual(response.User.GetExtra(), map[string][]string{"a": {"b"}})):
					t.Fatalf("user of the token = %+v, want %s with extra a=[b]", response.User, tt.want)
				}
				if len(tt.token) > authn.MaxTokenBytes {
					return // no review was sent
				}
				if got := s.version.Load(); got != "authentication.k8s.io/"+version {
					t.Fatalf("version of the review = %s, want authentication.k8s.io/%s", got, version)
				}
			})
		}
	}
}

func TestWebhookConnectionsUseConfiguredDial(t *testing.T) {
	var dialled atomic.Int32
	w := open(t, serve(t), func(c *Config) {
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			dialled.Add(1)
			return new(net.Dialer).DialContext(ctx, network, address)
		}
	})
	if _, ok, err := w.AuthenticateToken(t.Context(), "known"); !ok || err != nil || dialled.Load() == 0 {
		t.Errorf("AuthenticateToken() = %t, %v with %d dialed connections, want true over Dial", ok, err, dialled.Load())
	}
}

func TestB3ReviewAudiencesAreChecked(t *testing.T) {
	s := serve(t)
	w := open(t, s)
	for name, tt := range map[string]struct {
		token string
		asked authenticator.Audiences
		want  authenticator.Audiences
	}{
		"the server says nothing of audiences": {"known", authenticator.Audiences{"api", "x"}, authenticator.Audiences{"api"}},
		"and we are not meant":                 {"known", authenticator.Audiences{"ext"}, nil},
		"the server says which":                {"for-ext", authenticator.Audiences{"ext", "api"}, authenticator.Audiences{"ext"}},
		"and we do not ask for that":           {"for-ext", authenticator.Audiences{"api"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			response, ok, err := w.AuthenticateToken(authenticator.WithAudiences(t.Context(), tt.asked), tt.token)
			if err != nil || ok != (tt.want != nil) {
				t.Fatalf("AuthenticateToken(%q) for %q = %t, %v, want %q", tt.token, tt.asked, ok, err, tt.want)
			}
			if ok && !reflect.DeepEqual(response.Audiences, tt.want) {
				t.Fatalf("audiences of the response = %q, want %q", response.Audiences, tt.want)
			}
		})
	}
}

func TestB12ReviewResultsAreCached(t *testing.T) {
	ending := func(in time.Duration) string {
		return authtest.Token(`{"alg":"ES256"}`, fmt.Sprintf(`{"exp":%d}`, time.Now().Add(in).Unix()), nil)
	}
	with := authenticator.WithAudiences(t.Context(), authenticator.Audiences{"api"})
	tests := []struct {
		name          string
		ttl           time.Duration
		first, second context.Context
		token         string
		want          int32 // reviews
	}{
		{"a token that is known", time.Minute, t.Context(), t.Context(), "known", 1},
		{"one that is not", time.Minute, t.Context(), t.Context(), "stranger", 1},
		{"the same for other audiences", time.Minute, t.Context(), with, "known", 2},
		{"no memory", 0, t.Context(), t.Context(), "known", 2},
		{"one that has ended by its own account", time.Minute, t.Context(), t.Context(), ending(-time.Second), 2},
		{"one that has an hour", time.Minute, t.Context(), t.Context(), ending(time.Hour), 1},
		{"a failure of the server is no answer", time.Minute, t.Context(), t.Context(), "fail", 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t)
			w := open(t, s, func(c *Config) { c.CacheTTL = tt.ttl })
			_, first, _ := w.AuthenticateToken(tt.first, tt.token)
			_, second, _ := w.AuthenticateToken(tt.second, tt.token)
			if n := s.asked.Load(); n != tt.want || first != second {
				t.Fatalf("%d reviews with the results %t and %t, want %d and equal results", n, first, second, tt.want)
			}
		})
	}
	t.Run("never beyond its end", func(t *testing.T) {
		now := time.Now()
		if got := notAfterExpiry(ending(30*time.Second), now.Add(time.Minute)); got.After(now.Add(30 * time.Second)) {
			t.Fatalf("cache time of a token = %s, want at most 30s", got.Sub(now))
		}
	})
}

// TestHangingServerBlocksOnlyItsReviews checks that canceled callers return, that the number of waiting callers is limited, and that requests without tokens are
// not affected.
func TestHangingServerBlocksOnlyItsReviews(t *testing.T) {
	s := serve(t)
	w := open(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	answers := make(chan error, 2*maxAsking)
	ask := func(token string) {
		_, _, err := w.AuthenticateToken(ctx, token)
		answers <- err
	}
	for i := range maxAsking {
		go ask(fmt.Sprint("hang", i))
	}
	await(t, func() bool { return len(w.slots) == maxAsking })
	t.Run("more are refused at once", func(t *testing.T) {
		if _, _, err := w.AuthenticateToken(t.Context(), "known"); err == nil || !strings.Contains(err.Error(), "too many") {
			t.Fatalf("AuthenticateToken beyond the limit error = %v, want an error that contains too many", err)
		}
	})
	t.Run("many with one token are one question", func(t *testing.T) {
		for range maxAsking {
			go ask("hang0")
		}
		await(t, func() bool { return s.asked.Load() == maxAsking })
	})
	t.Run("a client that goes away is not waited for", func(t *testing.T) {
		cancel()
		for range 2 * maxAsking {
			if err := <-answers; err == nil {
				t.Fatal("AuthenticateToken of a canceled caller returned no error, want an error")
			}
		}
	})
	close(s.hold)
	t.Run("and when it is back it is asked again", func(t *testing.T) {
		await(t, func() bool { _, ok, _ := w.AuthenticateToken(t.Context(), "known"); return ok })
	})
}

// Without a share for each client, unknown tokens of one client occupied all reviews of a slow server, and valid tokens of other users were rejected.
func TestA53OneClientCannotOccupyAllReviews(t *testing.T) {
	s := serve(t)
	w := open(t, s)
	from := func(address string) context.Context {
		return &request.Context{Context: t.Context(), RemoteAddr: address}
	}
	answers := make(chan error, 2*maxAsking)
	for i := range 2 * maxAsking {
		go func() {
			_, _, err := w.AuthenticateToken(from(fmt.Sprintf("192.0.2.1:%d", 1000+i)), fmt.Sprint("hang", i))
			answers <- err
		}()
	}
	await(t, func() bool { return len(answers)+len(w.slots) == 2*maxAsking })
	if _, ok, err := w.AuthenticateToken(from("192.0.2.2:1000"), "known"); !ok || err != nil {
		t.Errorf("AuthenticateToken of another client = %t, %v, want true", ok, err)
	}
	close(s.hold)
	for range 2 * maxAsking {
		<-answers
	}
}

func await(t *testing.T, until func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for !until() {
		select {
		case <-deadline:
			t.Fatal("condition was false for 30 seconds, want it to become true")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func TestInvalidConfigurationsAreRejected(t *testing.T) {
	s := serve(t)
	tests := map[string]struct {
		change func(*Config)
		want   string
	}{
		"no file":              {func(c *Config) { c.File = "/nowhere/kubeconfig" }, "/nowhere/kubeconfig"},
		"another version":      {func(c *Config) { c.Version = "v2" }, "v2"},
		"a negative time":      {func(c *Config) { c.CacheTTL = -1 }, "negative"},
		"a server without TLS": {func(c *Config) { c.File = s.kubeconfig(t, func(k *clientcmdapi.Cluster) { k.Server = "http://a" }) }, "https"},
		"B15 a server that need not prove who it is": {func(c *Config) {
			c.File = s.kubeconfig(t, func(k *clientcmdapi.Cluster) { k.CertificateAuthorityData, k.InsecureSkipTLSVerify = nil, true })
		}, "insecure-skip-tls-verify"},
		"a file that is not one": {func(c *Config) {
			c.File = filepath.Join(t.TempDir(), "k")
			if err := os.WriteFile(c.File, []byte("nonsense: ["), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "--authentication-token-webhook-config-file"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := Config{File: s.kubeconfig(t)}
			tt.change(&cfg)
			if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("New() error = %v, want an error that contains %q", err, tt.want)
			}
		})
	}
	t.Run("B15 a server that somebody else stands for", func(t *testing.T) {
		other := serve(t)
		w := open(t, s, func(c *Config) {
			c.File = s.kubeconfig(t, func(k *clientcmdapi.Cluster) { k.Server = other.URL })
		})
		if _, ok, err := w.AuthenticateToken(t.Context(), "known"); ok || err == nil || other.asked.Load() != 0 {
			t.Fatalf("AuthenticateToken with another server at the address = %t, %v and %d reviews, want an error and 0", ok, err, other.asked.Load())
		}
	})
}
