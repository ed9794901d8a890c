package oidc

import (
	"fmt"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"portico.dev/internal/auth/authtest"
)

func TestFlags(t *testing.T) {
	p := serve(t, alive)
	tests := []struct {
		name   string
		change func(*Flags)
		want   string
	}{
		{"the defaults", func(f *Flags) { f.GroupsClaim = "" }, p.URL + "#1234: "},
		{"groups", func(*Flags) {}, p.URL + "#1234: dev ops"},
		{"no prefix", func(f *Flags) { f.UsernamePrefix = "-" }, "1234: dev ops"},
		{"a prefix", func(f *Flags) { f.UsernamePrefix, f.GroupsPrefix = "u:", "g:" }, "u:1234: g:dev g:ops"},
		{"email has no prefix unless it is asked for", func(f *Flags) { f.UsernameClaim = "email" }, "ann@example.com: dev ops"},
		{"a claim that is required and there", func(f *Flags) { f.RequiredClaims = map[string]string{"sub": "1234"} }, "#1234"},
		{"a claim that is required and another", func(f *Flags) { f.RequiredClaims = map[string]string{"sub": "5"} }, "error"},
		{"a user claim that is not there", func(f *Flags) { f.UsernameClaim = "nickname" }, "error"},
		{"an algorithm that is not listed", func(f *Flags) { f.SigningAlgs = []string{"RS256"} }, "algorithm"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := p.flags(t)
			tt.change(&f)
			eventually(t, start(t, Config{Flags: f}), p.token(), tt.want)
		})
	}
}

func TestInvalidConfigurationsAreRejected(t *testing.T) {
	const issuer = "jwt:\n- issuer: {url: https://a.example, audiences: [x]}\n  claimMappings: {username: {claim: sub, prefix: \"\"}}\n"
	file := func(text string) func(*Config) {
		return func(c *Config) {
			c.File = filepath.Join(t.TempDir(), "authentication.yaml")
			write(t, c.File, "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"+text)
		}
	}
	tests := []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"a file that is not there", func(c *Config) { c.File = "/nowhere/a.yaml" }, "no such file"},
		{"a CA file that is not there", func(c *Config) { c.Flags = Flags{IssuerURL: "https://a", ClientID: "x", CAFile: "/nowhere/ca"} }, "no such file"},
		{"file and flags", func(c *Config) { file(issuer)(c); c.Flags = Flags{IssuerURL: "https://a", ClientID: "x"} }, "exclude each other"},
		{"an issuer without a client", func(c *Config) { c.Flags = Flags{IssuerURL: "https://a"} }, "--oidc-client-id"},
		{"B1 HS256 on the list", func(c *Config) {
			c.Flags = Flags{IssuerURL: "https://a", ClientID: "x", SigningAlgs: []string{"HS256"}}
		}, "HS256"},
		{"an issuer without TLS", func(c *Config) { c.Flags = Flags{IssuerURL: "http://a", ClientID: "x"} }, "https"},
		{"a field that is misspelt", file(strings.Replace(issuer, "audiences", "audience", 1)), "unknown field"},
		{"another kind", func(c *Config) {
			c.File = filepath.Join(t.TempDir(), "a.yaml")
			write(t, c.File, "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: []\n")
		}, "expected an AuthenticationConfiguration"},
		{"an expression that does not compile", file(strings.Replace(issuer, `claim: sub, prefix: ""`, `expression: "claims."`, 1)), "compilation failed"},
		{"two of one issuer", file(issuer + strings.TrimPrefix(issuer, "jwt:\n")), "Duplicate"},
		{"B6 our own issuer", func(c *Config) { file(issuer)(c); c.DisallowedIssuers = []string{"https://a.example"} }, "disallowed"},
		{"a CA bundle with something else in it", file(strings.Replace(issuer, "audiences", `certificateAuthority: "nonsense", audiences`, 1)), "certificateAuthority"},
		{"an egress selector", file(strings.Replace(issuer, "audiences", "egressSelectorType: cluster, audiences", 1)), "egress selector"},
		{"anonymous by flag and by file", func(c *Config) { file("anonymous: {enabled: true}")(c); c.AnonymousRefused = true }, "--anonymous-auth"},
		{"an empty file", func(c *Config) { c.File = filepath.Join(t.TempDir(), "a.yaml"); write(t, c.File, "") }, "0 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var cfg Config
			tt.change(&cfg)
			if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("New() error = %v, want an error that contains %q", err, tt.want)
			}
		})
	}
}

// configuration returns a file with these issuers, which map claims with CEL.
func configuration(providers ...*provider) string {
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n"
	for _, p := range providers {
		text += fmt.Sprintf(`- issuer:
    url: %s
    audiences: [client, other]
    audienceMatchPolicy: MatchAny
    certificateAuthority: %q
  claimMappings:
    username: {expression: 'claims.login.split("@")[0]'}
    groups: {expression: 'dyn(claims.groups).map(g, "org:" + g)'}
    uid: {claim: sub}
    extra:
    - {key: example.com/mail, valueExpression: claims.login}
  claimValidationRules:
  - {expression: 'claims.groups.size() < 3', message: too many groups}
  userValidationRules:
  - {expression: '!user.username.startsWith("system:")', message: reserved}
`, p.URL, p.RootPEM)
	}
	return text
}

func TestConfigurationFile(t *testing.T) {
	first, second := serve(t, alive), serve(t, alive)
	file := filepath.Join(t.TempDir(), "authentication.yaml")
	write(t, file, configuration(first, second))
	s := start(t, Config{File: file})
	eventually(t, s, first.token(), "ann: org:dev org:ops")
	eventually(t, s, second.token(), "ann: org:dev org:ops")
	t.Run("uid and extra", func(t *testing.T) {
		response, _, err := s.AuthenticateToken(t.Context(), first.token())
		if err != nil || response.User.GetUID() != "1234" || !reflect.DeepEqual(response.User.GetExtra()["example.com/mail"], []string{"ann@example.com"}) {
			t.Fatalf("AuthenticateToken() = %+v, %v, want UID 1234 and the mail address", response, err)
		}
	})
	for name, tt := range map[string]struct{ token, want string }{
		"another of its audiences": {first.token(`"client"`, `"other"`), "ann"},
		"none of its audiences":    {first.token(`"client"`, `"third"`), "expected audience"},
		"a claim against the rules": {first.token(`["dev","ops"]`, `["a","b","c"]`),
			"too many groups"},
		"B6 a user against the rules": {first.token("ann@", "system:admin@"), "reserved"},
	} {
		t.Run(name, func(t *testing.T) { eventually(t, s, tt.token, tt.want) })
	}
}

// TestFailingIssuersDelayNeitherStartNorOtherIssuers checks that no issuer delays another, or the start.
func TestFailingIssuersDelayNeitherStartNorOtherIssuers(t *testing.T) {
	good, stuck, late, gone := serve(t, alive), serve(t, hung), serve(t, dead), serve(t, dead)
	moved, liar := serve(t, alive), serve(t, alive)
	moved.elsewhere = "http://127.0.0.1:1/keys"
	liar.Server = authtest.Serve(t, http.RedirectHandler(good.URL, http.StatusFound))
	file := filepath.Join(t.TempDir(), "authentication.yaml")
	write(t, file, configuration(good, stuck, late, gone, moved, liar))
	s := start(t, Config{File: file})
	eventually(t, s, good.token(), "ann")
	for name, tt := range map[string]struct{ token, want string }{
		"one that hangs":                      {stuck.token(), "has not answered"},
		"one that is dead":                    {gone.token(), "not known yet"},
		"one whose keys are not behind TLS":   {moved.token(), "not an https URL"},
		"A6 one that redirects to a good one": {liar.token(), "302"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eventually(t, s, tt.token, tt.want)
			if got := outcome(t.Context(), s, good.token()); !strings.HasPrefix(got, "ann") {
				t.Errorf("outcome of a token of the good issuer = %s, want ann", got)
			}
		})
	}
	t.Run("one that was dead and is there", func(t *testing.T) {
		t.Parallel()
		late.state.Store(alive)
		eventually(t, s, late.token(), "ann")
	})
	if s.Stale() != nil {
		t.Errorf("Stale() with unreachable issuers = %v, want nil", s.Stale())
	}
}

func TestConfigurationFileIsReloadedOnChange(t *testing.T) {
	t.Parallel()
	first, second := serve(t, alive), serve(t, alive)
	file := filepath.Join(t.TempDir(), "authentication.yaml")
	write(t, file, configuration(first))
	s := start(t, Config{File: file})
	eventually(t, s, first.token(), "ann")
	looks := first.looks.Load()

	edit(t, s, file, configuration(first, second)+"anonymous:\n  enabled: true\n  conditions: [{path: /livez}]\n", nil)
	eventually(t, s, second.token(), "ann")
	if said, enabled, paths := s.Anonymous(); !said || !enabled || !reflect.DeepEqual(paths, []string{"/livez"}) {
		t.Errorf("Anonymous() = %t, %t, %q, want true, true, [/livez]", said, enabled, paths)
	}
	if first.looks.Load() != looks {
		t.Errorf("%d reads of the unchanged issuer, want %d", first.looks.Load(), looks)
	}

	edit(t, s, file, "nonsense", func() bool { return s.Stale() != nil })
	if got := outcome(t.Context(), s, second.token()); !strings.HasPrefix(got, "ann") {
		t.Errorf("outcome of a token after a bad edit = %s, want ann", got)
	}

	edit(t, s, file, configuration(second), func() bool { return s.Stale() == nil })
	if got := outcome(t.Context(), s, first.token()); got != "foreign" {
		t.Errorf("B12: outcome of a token of a removed issuer = %s, want foreign", got)
	}
}

// edit writes the file and waits until the change is in effect: a new configuration, or the condition until.
func edit(t *testing.T, s *Issuers, file, text string, until func() bool) {
	t.Helper()
	before := reflect.ValueOf(s.follow.Current().issuers).Pointer()
	if until == nil {
		until = func() bool { return reflect.ValueOf(s.follow.Current().issuers).Pointer() != before }
	}
	write(t, file, text) // after reading the previous state, because the change may be in effect at once
	deadline := time.After(time.Minute)
	for !until() {
		select {
		case <-deadline:
			t.Fatal("the edit was not in effect within a minute, want it in effect")
		case <-time.After(50 * time.Millisecond):
		}
	}
}
