package serviceaccount

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/warning"

	"portico.dev/internal/auth/authtest"
	"portico.dev/internal/metrics"
)

// legacyBody returns the claims that kube-controller-manager v1.37.1 writes. Each pair replaces one text by another.
func legacyBody(replace ...string) string {
	return strings.NewReplacer(replace...).Replace(`{"iss":"kubernetes/serviceaccount","kubernetes.io/serviceaccount/namespace":"ns",` +
		`"kubernetes.io/serviceaccount/secret.name":"long","kubernetes.io/serviceaccount/service-account.name":"robot",` +
		`"kubernetes.io/serviceaccount/service-account.uid":"sa-1","sub":"system:serviceaccount:ns:robot"}`)
}

func TestSecretTokensRequireTheirSecret(t *testing.T) {
	head := `{"alg":"RS256","kid":"` + keyID(t, keys().rsa) + `"}`
	token := authtest.Token(head, legacyBody(), authtest.RS256(keys().rsa))
	moved := legacyBody(`"system:serviceaccount:ns:robot"`, `"system:serviceaccount:ns:other"`)
	going := metav1.NewTime(time.Now().Add(-5 * time.Second))
	const foreign = "somebody else's" // no error: further authenticators are called
	tests := []struct {
		name   string
		token  string // by default the valid token
		secret func(*corev1.Secret)
		change func(objects)
		asked  []string // audiences; by default none
		want   string   // the error, or empty
		uses   int      // uses counted for two rejected tokens
	}{
		{name: "in its secret"},
		{name: "for an audience of ours that is asked for", asked: []string{"elsewhere", "api"}},
		{name: "for an audience that is not ours", asked: []string{"elsewhere"}, want: "for none of the audiences"},
		{name: "its secret was deleted", change: func(o objects) { delete(o, "secrets/ns/long") }, want: "not found"},
		{name: "its secret has been going for seconds", secret: func(s *corev1.Secret) { s.DeletionTimestamp = &going }, want: "being deleted"},
		{name: "its secret was made anew", secret: func(s *corev1.Secret) { s.Data["token"] = []byte("another") }, want: "another token"},
		{name: "its secret has no token", secret: func(s *corev1.Secret) { s.Data = nil }, want: "another token"},
		{name: "a secret of another type has it", secret: func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }, want: "not one of a token"},
		{name: "invalid since nobody used it", secret: func(s *corev1.Secret) {
			s.Labels = map[string]string{invalidLabel: "2026-01-02"}
		}, want: "invalid since 2026-01-02: nobody had used it for long; use tokens of the TokenRequest API, or remove the label " + invalidLabel, uses: 2},
		{name: "its service account was deleted", change: func(o objects) { delete(o, "serviceaccounts/ns/robot") }, want: "not found"},
		{name: "its service account was made anew", change: func(o objects) {
			o["serviceaccounts/ns/robot"].(*corev1.ServiceAccount).UID = "sa-9"
		}, want: "there is another one by that name"},
		{name: "its service account has been going for seconds", change: func(o objects) {
			o["serviceaccounts/ns/robot"].(*corev1.ServiceAccount).DeletionTimestamp = &going
		}, want: "its service account is being deleted"},
		{name: "signed by somebody else", token: authtest.Token(head, legacyBody(), authtest.RS256(keys().otherRSA)), want: "signature"},
		{name: "not signed", token: authtest.Token(head, legacyBody(), nil), want: "signature"},
		{name: "without an algorithm", token: authtest.Token(`{"alg":"none","kid":"`+keyID(t, keys().rsa)+`"}`, legacyBody(), nil), want: "algorithm"},
		{name: "without a key id", token: authtest.Token(`{"alg":"RS256"}`, legacyBody(), authtest.RS256(keys().rsa)), want: foreign},
		{name: "of another cluster", token: authtest.Token(`{"alg":"RS256","kid":"`+keyID(t, keys().otherRSA)+`"}`, legacyBody(),
			authtest.RS256(keys().otherRSA)), want: foreign},
		{name: "a subject that is somebody else", token: authtest.Token(head, moved, authtest.RS256(keys().rsa)), want: "is not the service account"},
		{name: "no secret in it", token: authtest.Token(head, legacyBody(`"long"`, `""`), authtest.RS256(keys().rsa)), want: "does not name"},
		{name: "the claims of an issued token under the issuer of secrets",
			token: authtest.Token(head, body(issuer, legacyIssuer), authtest.RS256(keys().rsa)), want: "does not name"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.token == "" {
				tt.token = token
			}
			change, uses := cluster(), 0
			secret := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "long"}, Type: corev1.SecretTypeServiceAccountToken,
				Data: map[string][]byte{"token": []byte(tt.token)},
			}
			change["secrets/ns/long"] = secret
			if tt.secret != nil {
				tt.secret(secret)
			}
			if tt.change != nil {
				tt.change(change)
			}
			tokens := newTokens(t, func(c *Config) { c.Lookup, c.Used = change, func(*corev1.Secret) { uses++ } })
			ctx := context.Context(t.Context())
			if tt.asked != nil {
				ctx = authenticator.WithAudiences(ctx, tt.asked)
			}
			for range 2 { // the second time from the cache
				r, ok, err := tokens.AuthenticateToken(ctx, tt.token)
				if tt.want == foreign {
					if ok || err != nil {
						t.Fatalf("AuthenticateToken() = %t, %v, want false and no error, for a foreign token", ok, err)
					}
					continue
				}
				if tt.want != "" {
					if ok || err == nil || !strings.Contains(err.Error(), tt.want) {
						t.Fatalf("AuthenticateToken() = %t, %v, want an error that contains %q", ok, err, tt.want)
					}
					continue
				}
				if err != nil || !ok {
					t.Fatal(err)
				}
				if u := r.User; u.GetName() != "system:serviceaccount:ns:robot" || u.GetUID() != "sa-1" || len(u.GetExtra()) != 0 ||
					strings.Join(u.GetGroups(), " ") != "system:serviceaccounts system:serviceaccounts:ns" || strings.Join(r.Audiences, " ") != "api" {
					t.Errorf("user of the token = %+v with the audiences %v, want system:serviceaccount:ns:robot with sa-1 and api", u, r.Audiences)
				}
			}
			if tt.want == "" {
				tt.uses = 2
			}
			if uses != tt.uses {
				t.Errorf("%d uses of the token, want %d", uses, tt.uses)
			}
		})
	}
}

// Operators look for the traces of such tokens before they disable them (KEP-2799).
func TestUseOfSecretTokensIsRecorded(t *testing.T) {
	head := `{"alg":"RS256","kid":"` + keyID(t, keys().rsa) + `"}`
	token := authtest.Token(head, legacyBody(), authtest.RS256(keys().rsa))
	const (
		used    = "authentication.k8s.io/legacy-token"
		warns   = "Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated secret-based tokens."
		subject = "system:serviceaccount:ns:robot"
	)
	for _, c := range []struct {
		name        string
		named       []corev1.ObjectReference // secrets of the service account
		labels      map[string]string
		asked       []string
		annotations map[string]string
		warnings    []string
		counts      string // all, auto-generated, manual, invalid
	}{
		{name: "that somebody made", named: []corev1.ObjectReference{{Name: "other"}},
			annotations: map[string]string{used: subject, used + "-manual-secret": "long"}, counts: "1 0 1 0"},
		{name: "that its service account names", named: []corev1.ObjectReference{{Name: "other"}, {Name: "long"}},
			annotations: map[string]string{used: subject, used + "-autogenerated-secret": "long"}, warnings: []string{warns}, counts: "1 1 0 0"},
		{name: "that was called invalid", named: []corev1.ObjectReference{{Name: "long"}}, labels: map[string]string{invalidLabel: "2026-01-02"},
			annotations: map[string]string{used: subject, used + "-invalidated": "long/ns"}, counts: "1 0 0 1"},
		{name: "shown to others", asked: []string{"elsewhere"}, annotations: map[string]string{used: subject}, counts: "1 0 0 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			change := cluster()
			change["serviceaccounts/ns/robot"].(*corev1.ServiceAccount).Secrets = c.named
			change["secrets/ns/long"] = &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "long", Labels: c.labels}, Type: corev1.SecretTypeServiceAccountToken,
				Data: map[string][]byte{"token": []byte(token)},
			}
			m := metrics.NewServiceAccountTokens(prometheus.NewRegistry())
			tokens := newTokens(t, func(o *Config) { o.Lookup, o.Metrics = change, m })
			said := &recordedWarnings{}
			ctx := warning.WithWarningRecorder(audit.WithAuditContext(t.Context()), said)
			if c.asked != nil {
				ctx = authenticator.WithAudiences(ctx, c.asked)
			}
			_, ok, err := tokens.AuthenticateToken(ctx, token)
			if good := c.labels == nil && c.asked == nil; ok != good || (err == nil) != good {
				t.Fatalf("AuthenticateToken() = %t, %v, want %t", ok, err, good)
			}
			if got := audit.AuditContextFrom(ctx).GetEventAnnotations(); !maps.Equal(got, c.annotations) {
				t.Errorf("audit annotations = %v, want %v", got, c.annotations)
			}
			if !slices.Equal(*said, c.warnings) {
				t.Errorf("warnings = %q, want %q", *said, c.warnings)
			}
			if got := fmt.Sprint(testutil.ToFloat64(m.Legacy), testutil.ToFloat64(m.AutoGenerated), testutil.ToFloat64(m.Manual), testutil.ToFloat64(m.Invalid)); got != c.counts {
				t.Errorf("counted uses = %s, want %s", got, c.counts)
			}
		})
	}
}

type recordedWarnings []string

func (r *recordedWarnings) AddWarning(_, text string) { *r = append(*r, text) }
