package serviceaccount

import (
	"context"
	"encoding/base64"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	"portico.dev/internal/auth/authn"
	"portico.dev/internal/auth/authtest"
)

func unix(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

func TestForgedTokensAreRejected(t *testing.T) {
	now := time.Now() // constant, because generating and parsing megabytes of tokens takes seconds
	tokens := newTokens(t, func(c *Config) { c.Now = func() time.Time { return now } })
	ec, rsaID := keyID(t, keys().ec), keyID(t, keys().rsa)
	es, rs := authtest.ES256(keys().ec), authtest.RS256(keys().rsa)
	goodES := `{"alg":"ES256","kid":"` + ec + `"}`
	goodRS := `{"alg":"RS256","kid":"` + rsaID + `","typ":"JWT"}`
	withHeader := func(extra string) string {
		return authtest.Token(`{"alg":"ES256","kid":"`+ec+`",`+extra+`}`, body(), es)
	}
	dup := strings.Replace(body(), `"iss":`, `"iss":"https://attacker.example","iss":`, 1)
	const good, foreign, refused = "good", "foreign", "refused"
	tests := []struct {
		name  string
		token string
		want  string
	}{
		{"a good ES256 token", authtest.Token(goodES, body(), es), good},
		{"a good RS256 token of the key before the rotation", authtest.Token(goodRS, body(), rs), good},
		{"an audience that is one string", authtest.Token(goodES, body(`["api"]`, `"api"`), es), good},

		{"B1 alg none", authtest.Token(`{"alg":"none","kid":"`+ec+`"}`, body(), nil), refused},
		{"B1 alg None in another case", authtest.Token(`{"alg":"nOnE","kid":"`+ec+`"}`, body(), nil), refused},
		{"B1 no alg", authtest.Token(`{"kid":"`+ec+`"}`, body(), es), refused},
		{"B1 HS256 with the public key as the secret", authtest.Token(`{"alg":"HS256","kid":"`+rsaID+`"}`, body(), authtest.HS256(publicPEM(t, keys().rsa))), refused},
		{"B1 PS256 by the right key", authtest.Token(`{"alg":"PS256","kid":"`+rsaID+`"}`, body(), authtest.PS256(keys().rsa)), refused},
		{"B1 PS256 called RS256", authtest.Token(goodRS, body(), authtest.PS256(keys().rsa)), refused},
		{"B1 the ES256 key with an RS256 header", authtest.Token(`{"alg":"RS256","kid":"`+ec+`"}`, body(), es), refused},
		{"B1 the RS256 key with an ES256 header", authtest.Token(`{"alg":"ES256","kid":"`+rsaID+`"}`, body(), rs), refused},
		{"B1 crit", withHeader(`"crit":["exp"]`), refused},
		{"B1 jku", withHeader(`"jku":"https://attacker.example/jwks"`), refused},
		{"B1 jwk", withHeader(`"jwk":{"kty":"EC"}`), refused},
		{"B1 x5u", withHeader(`"x5u":"https://attacker.example/cert"`), refused},
		{"B1 x5c", withHeader(`"x5c":["MII"]`), refused},
		{"B1 signed by somebody else", authtest.Token(goodES, body(), authtest.ES256(keys().otherEC)), refused},
		{"B1 signature cut off", authtest.Token(goodES, body(), nil), refused},

		{"B2 unknown kid", authtest.Token(`{"alg":"ES256","kid":"`+keyID(t, keys().otherEC)+`"}`, body(), es), refused},
		{"B2 no kid", authtest.Token(`{"alg":"ES256"}`, body(), es), refused},
		{"B2 kid is a path", authtest.Token(`{"alg":"ES256","kid":"../../../../dev/null"}`, body(), es), refused},
		{"B2 kid is SQL", authtest.Token(`{"alg":"ES256","kid":"' UNION SELECT 'key"}`, body(), es), refused},
		{"B2 kid twice", authtest.Token(`{"alg":"ES256","kid":"x","kid":"`+ec+`"}`, body(), es), refused},
		{"B2 kid of a megabyte", authtest.Token(`{"alg":"ES256","kid":"`+strings.Repeat("k", 1<<20)+`"}`, body(), es), refused},

		{"B3 for another audience", authtest.Token(goodES, body(`["api"]`, `["ext-a"]`), es), refused},
		{"B3 for no audience", authtest.Token(goodES, body(`["api"]`, `[]`), es), refused},
		{"B3 audience is missing", authtest.Token(goodES, body(`"aud":["api"],`, ``), es), refused},
		{"B3 a hundred thousand audiences", authtest.Token(goodES, body(`["api"]`, `["a"`+strings.Repeat(`,"a"`, 100_000)+`]`), es), refused},

		{"B4 expired beyond the leeway", authtest.Token(goodES, body("EXP", unix(now.Add(-61*time.Second))), es), refused},
		{"B4 expired within the leeway", authtest.Token(goodES, body("EXP", unix(now.Add(-55*time.Second))), es), good},
		{"B4 not yet valid", authtest.Token(goodES, body("NBF", unix(now.Add(63*time.Second))), es), refused},
		{"B4 exp is missing", authtest.Token(goodES, body(`"exp":EXP,`, ``), es), refused},
		{"B4 exp is 2^63", authtest.Token(goodES, body("EXP", "9223372036854775808"), es), refused},
		{"B4 exp is 2^63-1", authtest.Token(goodES, body("EXP", "9223372036854775807"), es), refused},
		{"B4 exp is a fraction", authtest.Token(goodES, body("EXP", unix(time.Now().Add(time.Hour))+".5"), es), refused},
		{"B4 exp has an exponent", authtest.Token(goodES, body("EXP", "4e9"), es), refused},
		{"B4 exp is negative", authtest.Token(goodES, body("EXP", "-1"), es), refused},
		{"B4 exp is NaN", authtest.Token(goodES, body("EXP", "NaN"), es), foreign}, // not JSON, so not a token
		{"B4 exp is a string", authtest.Token(goodES, body("EXP", `"9999999999"`), es), refused},
		{"B4 exp is null", authtest.Token(goodES, body("EXP", "null"), es), refused},

		{"B6 another issuer", authtest.Token(goodES, body(issuer, "https://other.example"), es), foreign},
		{"B6 an issuer that begins like ours", authtest.Token(goodES, body(issuer, issuer+".attacker.example"), es), foreign},
		{"B6 an issuer that ours begins like", authtest.Token(goodES, body(issuer, "https://front"), es), foreign},
		{"B6 iss twice", authtest.Token(goodES, dup, es), refused},
		{"B6 iss twice, once in capitals", authtest.Token(goodES, strings.Replace(dup, `"iss":"https://a`, `"ISS":"https://a`, 1), es), refused},
		{"B6 a nested member twice", authtest.Token(goodES, body(`"uid":"sa-1"`, `"uid":"sa-2","uid":"sa-1"`), es), refused},
		{"B6 something after the claims", authtest.Token(goodES, body()+`{}`, es), foreign},

		{"B7 five parts", "a.b.c.d.e", foreign},
		{"B7 a million dots", strings.Repeat(".", 1_000_000), refused},
		{"B7 16 KiB of dots", strings.Repeat(".", authn.MaxTokenBytes), foreign},
		{"B7 eight megabytes", authtest.Token(goodES, body(`"id-1"`, `"`+strings.Repeat("x", 8<<20)+`"`), es), refused},
		{"B7 nested a thousand deep", authtest.Token(goodES, body(`"id-1"`, strings.Repeat("[", 1000)+strings.Repeat("]", 1000)), es), refused},

		{"a subject that is not the claim's account", authtest.Token(goodES, body("account:ns:robot", "account:ns:admin"), es), refused},
		{"no private claim", authtest.Token(goodES, body(`"kubernetes.io"`, `"other.io"`), es), refused},
		{"a bound pod without a uid", authtest.Token(goodES, body(`"serviceaccount":`, `"pod":{"name":"pod"},"serviceaccount":`), es), refused},
		{"base64 with stray bits", strayBits(authtest.Token(goodES, body(), es)), refused},
		{"an opaque token", "0123456789abcdef", foreign},
		{"an empty token", "", foreign},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, again := range []string{"fresh", "remembered"} {
				response, ok, err := tokens.AuthenticateToken(t.Context(), tt.token)
				got := map[bool]string{true: good, false: foreign}[ok]
				if err != nil {
					got = refused
				}
				if got != tt.want {
					t.Fatalf("AuthenticateToken of a %s token = %s (%v), want %s", again, got, err, tt.want)
				}
				if ok && response.User.GetName() != "system:serviceaccount:ns:robot" {
					t.Fatalf("user of the token = %q, want system:serviceaccount:ns:robot", response.User.GetName())
				}
			}
		})
	}
}

// strayBits encodes the same signature in another way.
func strayBits(token string) string {
	last := strings.IndexByte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", token[len(token)-1])
	return token[:len(token)-1] + string("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[last|1])
}

func TestContextAudiencesAreChecked(t *testing.T) {
	tokens := newTokens(t)
	issued, err := tokens.Issue(t.Context(), IssueRequest{Namespace: "ns", Name: "robot", Spec: spec("ext-a", "ext-b")})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("B3 the intersection is answered", func(t *testing.T) {
		ctx := authenticator.WithAudiences(t.Context(), authenticator.Audiences{"ext-c", "ext-b"})
		response, ok, err := tokens.AuthenticateToken(ctx, issued.Token)
		if err != nil || !ok || !reflect.DeepEqual(response.Audiences, authenticator.Audiences{"ext-b"}) {
			t.Fatalf("AuthenticateToken for ext-c and ext-b = %+v, %t, %v, want the audience ext-b", response, ok, err)
		}
	})
	t.Run("B3 a token for an extension server is not good for the front door", func(t *testing.T) {
		if _, ok, err := tokens.AuthenticateToken(t.Context(), issued.Token); ok || err == nil {
			t.Fatalf("AuthenticateToken of a token for other audiences = %t, %v, want an error", ok, err)
		}
	})
}

func TestTokenOfDeletedBoundObjectIsRejected(t *testing.T) {
	going := func(ago time.Duration) func(metav1.Object) {
		return func(o metav1.Object) {
			at := metav1.NewTime(time.Now().Add(-ago))
			o.SetDeletionTimestamp(&at)
		}
	}
	recreated := func(o metav1.Object) { o.SetUID(types.UID("another")) }
	gone := func(metav1.Object) {}
	tests := []struct {
		name   string
		bound  string // kind
		key    string
		change func(metav1.Object)
		remove bool
		good   bool
	}{
		{name: "everything is as it was", bound: "Pod", key: "pods/ns/pod", change: gone, good: true},
		{name: "B5 account deleted", key: "serviceaccounts/ns/robot", change: gone, remove: true},
		{name: "B5 account recreated", key: "serviceaccounts/ns/robot", change: recreated},
		{name: "B5 account being deleted for a while", key: "serviceaccounts/ns/robot", change: going(61 * time.Second)},
		{name: "B5 pod deleted", bound: "Pod", key: "pods/ns/pod", change: gone, remove: true},
		{name: "B5 pod recreated", bound: "Pod", key: "pods/ns/pod", change: recreated},
		{name: "B5 pod finishing its last calls", bound: "Pod", key: "pods/ns/pod", change: going(59 * time.Second), good: true},
		{name: "B5 pod being deleted for too long", bound: "Pod", key: "pods/ns/pod", change: going(61 * time.Second)},
		{name: "B5 secret deleted", bound: "Secret", key: "secrets/ns/secret", change: gone, remove: true},
		{name: "B5 secret recreated", bound: "Secret", key: "secrets/ns/secret", change: recreated},
		{name: "B5 node deleted", bound: "Node", key: "nodes//node", change: gone, remove: true},
		{name: "B5 node recreated", bound: "Node", key: "nodes//node", change: recreated},
		{name: "the node of a pod-bound token does not end it", bound: "Pod", key: "nodes//node", change: gone, remove: true, good: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			live := cluster()
			tokens := newTokens(t, func(c *Config) { c.Lookup = live })
			issued, err := tokens.Issue(t.Context(), IssueRequest{Namespace: "ns", Name: "robot", Spec: boundTo(tt.bound)})
			if err != nil {
				t.Fatal(err)
			}
			// The first call, with all objects present, caches the token.
			if _, ok, err := tokens.AuthenticateToken(t.Context(), issued.Token); !ok || err != nil {
				t.Fatalf("AuthenticateToken before the change = %t, %v, want true", ok, err)
			}
			tt.change(live[tt.key])
			if tt.remove {
				delete(live, tt.key)
			}
			if _, ok, err := tokens.AuthenticateToken(t.Context(), issued.Token); ok != tt.good {
				t.Fatalf("AuthenticateToken after the change = %t, %v, want %t", ok, err, tt.good)
			}
		})
	}
}

func TestCachedTokenIsRejectedAfterExpiry(t *testing.T) {
	tokens := newTokens(t)
	keys()
	synctest.Test(t, func(t *testing.T) {
		issued, err := tokens.Issue(t.Context(), IssueRequest{Namespace: "ns", Name: "robot"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(issued.Expires) + authn.ClockSkew - 2*time.Second)
		if _, ok, err := tokens.AuthenticateToken(t.Context(), issued.Token); !ok {
			t.Fatalf("AuthenticateToken within the leeway = %t, %v, want true", ok, err)
		}
		time.Sleep(3 * time.Second)
		if _, ok, _ := tokens.AuthenticateToken(t.Context(), issued.Token); ok {
			t.Fatal("AuthenticateToken of an expired token that was cached succeeded, want it rejected")
		}
	})
}

func TestLookupErrorFailsAuthentication(t *testing.T) {
	tokens := newTokens(t, func(c *Config) { c.Lookup = failing{} })
	token := authtest.Token(`{"alg":"ES256","kid":"`+keyID(t, keys().ec)+`"}`, body(), authtest.ES256(keys().ec))
	if _, ok, err := tokens.AuthenticateToken(t.Context(), token); ok || !errors.Is(err, errStorage) {
		t.Fatalf("AuthenticateToken with a failing look-up = %t, %v, want false and errStorage", ok, err)
	}
}

var errStorage = errors.New("storage is away")

type failing struct{ objects }

func (failing) GetServiceAccount(context.Context, string, string) (*corev1.ServiceAccount, error) {
	return nil, errStorage
}

// FuzzToken checks that no input makes the parser panic, that no input without Portico's signature is accepted, and that the strict
// parser and the JWT library read accepted tokens in the same way.
func FuzzToken(f *testing.F) {
	tokens := newTokens(f)
	kid := keyID(f, keys().ec)
	f.Add(authtest.Token(`{"alg":"ES256","kid":"`+kid+`"}`, body(), nil))
	f.Add(authtest.Token(`{"alg":"none"}`, `{"iss":"`+issuer+`"}`, nil))
	f.Add(authtest.Token(`{"alg":"ES256","kid":"`+kid+`"}`, `{"iss":"x","iss":"`+issuer+`"}`, nil))
	f.Add("a.b.c")
	f.Add("...")
	f.Add(base64.RawURLEncoding.EncodeToString([]byte(`{"a":[{"b":1}],"a":2}`)))
	f.Fuzz(func(t *testing.T, token string) {
		if _, ok, _ := tokens.AuthenticateToken(t.Context(), token); ok {
			t.Fatalf("AuthenticateToken(%q) succeeded, want it rejected", token)
		}
		if _, ok, _ := tokens.AuthenticateToken(t.Context(), authtest.Token(`{"alg":"ES256","kid":"`+kid+`"}`, token, nil)); ok {
			t.Fatalf("AuthenticateToken with the unsigned claims %q succeeded, want it rejected", token)
		}
	})
}
