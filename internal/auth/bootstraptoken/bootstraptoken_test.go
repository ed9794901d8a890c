package bootstraptoken

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	id     = "foobar"
	secret = "circumnavigation"
	now    = "2026-07-01T12:00:00Z"
)

// tokenSecret is the Secret of a valid token. Empty values remove its data.
func tokenSecret(change func(*corev1.Secret), data ...string) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-" + id}, Type: "bootstrap.kubernetes.io/token",
		Data: map[string][]byte{"token-id": []byte(id), "token-secret": []byte(secret), "usage-bootstrap-authentication": []byte("true")},
	}
	for i := 0; i < len(data); i += 2 {
		s.Data[data[i]] = []byte(data[i+1])
	}
	if change != nil {
		change(s)
	}
	return s
}

func authenticate(t *testing.T, s *corev1.Secret, token string) (*authenticator.Response, bool, error) {
	t.Helper()
	at, err := time.Parse(time.RFC3339, now)
	if err != nil {
		t.Fatal(err)
	}
	a := &Authenticator{
		Secret: func(name string) (*corev1.Secret, error) {
			if s == nil || s.Name != name {
				return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
			}
			return s, nil
		},
		Now: func() time.Time { return at }, Logger: zap.NewNop(),
	}
	return a.AuthenticateToken(t.Context(), token)
}

// The rows correspond to kube-apiserver's own test.
func TestB16OnlyValidBootstrapTokensAreAccepted(t *testing.T) {
	const good = id + "." + secret
	groups := func(names ...string) []string { return names }
	for name, c := range map[string]struct {
		secret *corev1.Secret
		token  string
		groups []string // nil: the token is rejected
	}{
		"valid":                        {tokenSecret(nil), good, groups("system:bootstrappers")},
		"with a group":                 {tokenSecret(nil, "auth-extra-groups", "system:bootstrappers:foo"), good, groups("system:bootstrappers", "system:bootstrappers:foo")},
		"with groups twice":            {tokenSecret(nil, "auth-extra-groups", "system:bootstrappers:b,system:bootstrappers:a,system:bootstrappers:b"), good, groups("system:bootstrappers", "system:bootstrappers:a", "system:bootstrappers:b")},
		"not expired":                  {tokenSecret(nil, "expiration", "2026-07-01T12:00:01Z"), good, groups("system:bootstrappers")},
		"not expired, elsewhere":       {tokenSecret(nil, "expiration", "2026-07-01T14:00:01+02:00"), good, groups("system:bootstrappers")},
		"a group of administrators":    {tokenSecret(nil, "auth-extra-groups", "system:masters"), good, nil},
		"a group that only begins so":  {tokenSecret(nil, "auth-extra-groups", "system:bootstrappersx"), good, nil},
		"groups on two lines":          {tokenSecret(nil, "auth-extra-groups", "system:bootstrappers:a\nsystem:masters"), good, nil},
		"one good group, one bad":      {tokenSecret(nil, "auth-extra-groups", "system:bootstrappers:a,system:nodes"), good, nil},
		"expired":                      {tokenSecret(nil, "expiration", "2026-07-01T12:00:00Z"), good, nil},
		"expiration is no time":        {tokenSecret(nil, "expiration", "tomorrow"), good, nil},
		"another secret part":          {tokenSecret(nil), id + ".circumnavigatiom", nil},
		"an empty secret part":         {tokenSecret(nil, "token-secret", ""), good, nil},
		"another id in the Secret":     {tokenSecret(nil, "token-id", "barfoo"), good, nil},
		"another id":                   {tokenSecret(nil), "barfoo." + secret, nil},
		"no Secret":                    {nil, good, nil},
		"a Secret of another name":     {tokenSecret(func(s *corev1.Secret) { s.Name = "bad-name" }), good, nil},
		"a Secret of another type":     {tokenSecret(func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }), good, nil},
		"being deleted":                {tokenSecret(func(s *corev1.Secret) { s.DeletionTimestamp = &metav1.Time{} }), good, nil},
		"without data":                 {tokenSecret(func(s *corev1.Secret) { s.Data = nil }), good, nil},
		"without the usage":            {tokenSecret(nil, "usage-bootstrap-authentication", ""), good, nil},
		"the usage in another case":    {tokenSecret(nil, "usage-bootstrap-authentication", "True"), good, nil},
		"for signing only":             {tokenSecret(nil, "usage-bootstrap-authentication", "false", "usage-bootstrap-signing", "true"), good, nil},
		"an id that is too short":      {tokenSecret(func(s *corev1.Secret) { s.Name = "bootstrap-token-foo" }, "token-id", "foo"), "foo." + secret, nil},
		"a path as an id":              {tokenSecret(nil), "../foo." + secret, nil},
		"capital letters":              {tokenSecret(nil), "FOOBAR." + secret, nil},
		"a line that ends":             {tokenSecret(nil), good + "\n", nil},
		"something before it":          {tokenSecret(nil), "x" + good, nil},
		"a token of a service account": {tokenSecret(nil), "eyJhbGciOiJSUzI1NiJ9.e30.c2ln", nil},
		"nothing":                      {tokenSecret(nil), "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			response, ok, err := authenticate(t, c.secret, c.token)
			if err != nil || ok != (c.groups != nil) {
				t.Fatalf("AuthenticateToken(%q) = %v, %v, %v, want groups %q", c.token, response, ok, err, c.groups)
			}
			if ok && (response.User.GetName() != "system:bootstrap:foobar" || !slices.Equal(response.User.GetGroups(), c.groups)) {
				t.Errorf("user = %v, want system:bootstrap:foobar with %q", response.User, c.groups)
			}
		})
	}
}

func TestUnreadableSecretFailsAuthentication(t *testing.T) {
	a := &Authenticator{Secret: func(string) (*corev1.Secret, error) { return nil, errors.New("away") }, Now: time.Now, Logger: zap.NewNop()}
	_, ok, err := a.AuthenticateToken(t.Context(), id+"."+secret)
	if ok || err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("AuthenticateToken with an unreadable Secret = %v, %v, want an error without the secret", ok, err)
	}
}

// A token review for audiences of other servers does not reveal a bootstrap token.
func TestB3BootstrapTokenIsRejectedForOtherAudiences(t *testing.T) {
	a := authenticator.WrapAudienceAgnosticToken(authenticator.Audiences{"us"}, &Authenticator{
		Secret: func(string) (*corev1.Secret, error) { return tokenSecret(nil), nil }, Now: time.Now, Logger: zap.NewNop(),
	})
	for audience, want := range map[string]bool{"us": true, "them": false} {
		response, ok, err := a.AuthenticateToken(authenticator.WithAudiences(context.Background(), authenticator.Audiences{audience}), id+"."+secret)
		if ok != want || err != nil || ok && !slices.Equal(response.Audiences, authenticator.Audiences{"us"}) {
			t.Errorf("AuthenticateToken for the audience %s = %v, %v, %v, want %v with the audience us", audience, response, ok, err, want)
		}
	}
}
