package cluster

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"portico.dev/internal/filters"
	"portico.dev/internal/pki"
)

func prefixOfTest(*filters.Request) string { return "/clusters/prod" }

func TestCredentialsAreReplaced(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, e *env) {
		e.handleAll(whoami)
		expect := func(want string, fields ...string) {
			t.Helper()
			for range 4 {
				if a := e.get("/api/v1/nodes", fields...); a.body != want {
					t.Errorf("the API server sees %s, want %s", a.body, want)
				}
			}
		}
		use := func(token, name string) {
			t.Helper()
			var cert, key []byte
			if name != "" {
				var err error
				if cert, key, err = e.clients.Issue(pki.Leaf{CommonName: name, Client: true}); err != nil {
					t.Fatal(err)
				}
			}
			if err := e.credentials.Use(token, cert, key); err != nil {
				t.Fatal(err)
			}
		}
		expect("Bearer " + testToken + ` as "alice"`)
		use("second", "")
		expect(`Bearer second as "alice"`)
		use("", "first-certificate")
		expect(`certificate first-certificate as "alice"`)
		expect(`Bearer of-a-user as ""`, "X-Test-Token", "of-a-user")
		use("", "second-certificate")
		expect(`certificate second-certificate as "alice"`)
		pair := e.pair(e.clients, pki.Leaf{CommonName: "of-the-front-door", Client: true})
		e.credentials.UseCertificate(pair)
		expect(`certificate of-the-front-door as "alice"`)
		use("third", "")
		expect(`Bearer third as "alice"`)
		if err := e.credentials.Use("", nil, nil); err == nil {
			t.Error("Use without credentials returned no error, want one")
		}
		expect(`Bearer third as "alice"`)
		settle(time.Minute)
		if s := e.cluster.State(); !s.Endpoints[0].Ready || !s.Endpoints[1].Ready {
			t.Errorf("State() = %+v, want both ready", s)
		}
	})
}

func TestInvalidCredentialsAreRefused(t *testing.T) {
	cert, key, err := newAuthority(t, "clients").Issue(pki.Leaf{CommonName: "a", Client: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		token     string
		cert, key []byte
	}{
		"nothing": {}, "both": {"a", cert, key}, "certificate without a key": {"", cert, nil}, "no certificate": {"", []byte("x"), key},
		"token with a line break": {token: "a\nb"}, "token with a blank at its end": {token: "a "},
	} {
		var s StaticCredentials
		if err := s.Use(c.token, c.cert, c.key); err == nil {
			t.Errorf("%s: Use returned no error, want one", name)
		}
		if err := s.Apply(t.Context(), http.Header{}); err == nil {
			t.Errorf("%s: Apply returned no error, want one, because there are no credentials", name)
		}
	}
}

func TestMissingCredentials(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, e *env) {
		e.handleAll(whoami)
		for _, path := range []string{"/api/v1/nodes", "/apis"} {
			a := e.get(path)
			if want := "the credentials for cluster prod are not available"; a.StatusCode != http.StatusServiceUnavailable || !strings.Contains(a.body, want) {
				t.Errorf("GET %s without credentials = %d %s, want 503 with %q", path, a.StatusCode, a.body, want)
			}
		}
		if a := e.get("/api/v1/nodes", "X-Test-Token", "of-a-user"); a.body != `Bearer of-a-user as ""` {
			t.Errorf("GET with a token of the user = %s, want it to be sent", a.body)
		}
		if s := e.cluster.State(); !s.Ready {
			t.Errorf("State() = %+v, want it ready: /readyz needs no credentials", s)
		}
	}, func(c *Config) { c.Credentials = &StaticCredentials{} })
}

func TestRoundTripHasTheCredentialsOfTheFrontDoor(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, e *env) {
		e.handleAll(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			_, _ = io.WriteString(w, strings.Join([]string{r.Host, r.RequestURI, r.Header.Get("Authorization"), string(body)}, " "))
		})
		c := &http.Client{Transport: e.cluster}
		resp, err := c.Post("https://anything/apis/authentication.k8s.io/v1/tokenreviews?a=b", "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		want := DefaultServerName + " /base/apis/authentication.k8s.io/v1/tokenreviews?a=b Bearer " + testToken + " {}"
		if err != nil || string(body) != want {
			t.Errorf("POST = %s, %v, want %s", body, err, want)
		}
	}, func(c *Config) { c.Server.Path = "/base" })
}

// An API server prefers the user of a certificate to the user of a token. A client with a token must not be the front door there.
func TestTokensOfClientsAreSentWithoutTheCertificate(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, e *env) {
		e.credentials.UseCertificate(e.pair(e.clients, pki.Leaf{CommonName: "front-door", Client: true}))
		e.handleAll(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") == "" {
				whoami(w, r)
				return
			}
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Server: %d %s\r\n\r\n", len(r.TLS.PeerCertificates), r.Header.Get("Authorization"))
		})
		for _, path := range []string{"/api/v1/nodes", "/openapi/v2"} {
			if got, want := e.get(path).body, `certificate front-door as "alice"`; got != want {
				t.Errorf("GET %s: the API server sees %s, want %s", path, got, want)
			}
			if got, want := e.get(path, "X-Test-Token", "mine").body, `Bearer mine as ""`; got != want {
				t.Errorf("GET %s with a token: the API server sees %s, want %s", path, got, want)
			}
		}
		if got, want := e.upgrade(), "1"; got != want {
			t.Errorf("upgrade: certificates and Authorization = %q, want %q", got, want)
		}
		if got, want := e.upgrade("X-Test-Token: mine\r\n"), "0 Bearer mine"; got != want {
			t.Errorf("upgrade with a token: certificates and Authorization = %q, want %q", got, want)
		}
	})
}
