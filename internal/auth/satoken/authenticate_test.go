package satoken

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
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

	"portico.dev/internal/auth/credential"
)

func unix(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

func signES256(key *ecdsa.PrivateKey) func(string) []byte {
	return func(input string) []byte {
		sum := sha256.Sum256([]byte(input))
		r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
		if err != nil {
			panic(err)
		}
		out := make([]byte, 64)
		r.FillBytes(out[:32])
		s.FillBytes(out[32:])
		return out
	}
}

func signRS256(key *rsa.PrivateKey) func(string) []byte {
	return func(input string) []byte {
		sum := sha256.Sum256([]byte(input))
		out, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
		if err != nil {
			panic(err)
		}
		return out
	}
}

func signPS256(key *rsa.PrivateKey) func(string) []byte {
	return func(input string) []byte {
		sum := sha256.Sum256([]byte(input))
		out, err := rsa.SignPSS(rand.Reader, key, crypto.SHA256, sum[:], nil)
		if err != nil {
			panic(err)
		}
		return out
	}
}

func signHS256(secret []byte) func(string) []byte {
	return func(input string) []byte {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(input))
		return mac.Sum(nil)
	}
}

func TestForgedTokens(t *testing.T) {
	tokens := newTokens(t)
	ec, rsaID := keyID(t, keys().ec), keyID(t, keys().rsa)
	es, rs := signES256(keys().ec), signRS256(keys().rsa)
	goodES := `{"alg":"ES256","kid":"` + ec + `"}`
	goodRS := `{"alg":"RS256","kid":"` + rsaID + `","typ":"JWT"}`
	withHeader := func(extra string) string { return forge(`{"alg":"ES256","kid":"`+ec+`",`+extra+`}`, body(), es) }
	dup := strings.Replace(body(), `"iss":`, `"iss":"https://attacker.example","iss":`, 1)
	const good, foreign, refused = "good", "foreign", "refused"
	tests := []struct {
		name  string
		token string
		want  string
	}{
		{"a good ES256 token", forge(goodES, body(), es), good},
		{"a good RS256 token of the key before the rotation", forge(goodRS, body(), rs), good},
		{"an audience that is one string", forge(goodES, body(`["api"]`, `"api"`), es), good},

		{"B1 alg none", forge(`{"alg":"none","kid":"`+ec+`"}`, body(), nil), refused},
		{"B1 alg None in another case", forge(`{"alg":"nOnE","kid":"`+ec+`"}`, body(), nil), refused},
		{"B1 no alg", forge(`{"kid":"`+ec+`"}`, body(), es), refused},
		{"B1 HS256 with the public key as the secret", forge(`{"alg":"HS256","kid":"`+rsaID+`"}`, body(), signHS256(publicPEM(t, keys().rsa))), refused},
		{"B1 PS256 by the right key", forge(`{"alg":"PS256","kid":"`+rsaID+`"}`, body(), signPS256(keys().rsa)), refused},
		{"B1 PS256 called RS256", forge(goodRS, body(), signPS256(keys().rsa)), refused},
		{"B1 the ES256 key with an RS256 header", forge(`{"alg":"RS256","kid":"`+ec+`"}`, body(), es), refused},
		{"B1 the RS256 key with an ES256 header", forge(`{"alg":"ES256","kid":"`+rsaID+`"}`, body(), rs), refused},
		{"B1 crit", withHeader(`"crit":["exp"]`), refused},
		{"B1 jku", withHeader(`"jku":"https://attacker.example/jwks"`), refused},
		{"B1 jwk", withHeader(`"jwk":{"kty":"EC"}`), refused},
		{"B1 x5u", withHeader(`"x5u":"https://attacker.example/cert"`), refused},
		{"B1 x5c", withHeader(`"x5c":["MII"]`), refused},
		{"B1 signed by somebody else", forge(goodES, body(), signES256(keys().otherEC)), refused},
		{"B1 signature cut off", forge(goodES, body(), nil), refused},

		{"B2 unknown kid", forge(`{"alg":"ES256","kid":"`+keyID(t, keys().otherEC)+`"}`, body(), es), refused},
		{"B2 no kid", forge(`{"alg":"ES256"}`, body(), es), refused},
		{"B2 kid is a path", forge(`{"alg":"ES256","kid":"../../../../dev/null"}`, body(), es), refused},
		{"B2 kid is SQL", forge(`{"alg":"ES256","kid":"' UNION SELECT 'key"}`, body(), es), refused},
		{"B2 kid twice", forge(`{"alg":"ES256","kid":"x","kid":"`+ec+`"}`, body(), es), refused},
		{"B2 kid of a megabyte", forge(`{"alg":"ES256","kid":"`+strings.Repeat("k", 1<<20)+`"}`, body(), es), refused},

		{"B3 for another audience", forge(goodES, body(`["api"]`, `["ext-a"]`), es), refused},
		{"B3 for no audience", forge(goodES, body(`["api"]`, `[]`), es), refused},
		{"B3 audience is missing", forge(goodES, body(`"aud":["api"],`, ``), es), refused},
		{"B3 a hundred thousand audiences", forge(goodES, body(`["api"]`, `["a"`+strings.Repeat(`,"a"`, 100_000)+`]`), es), refused},

		{"B4 expired beyond the leeway", forge(goodES, body("EXP", unix(time.Now().Add(-11*time.Second))), es), refused},
		{"B4 expired within the leeway", forge(goodES, body("EXP", unix(time.Now().Add(-5*time.Second))), es), good},
		{"B4 not yet valid", forge(goodES, body("NBF", unix(time.Now().Add(61*time.Second))), es), refused},
		{"B4 exp is missing", forge(goodES, body(`"exp":EXP,`, ``), es), refused},
		{"B4 exp is 2^63", forge(goodES, body("EXP", "9223372036854775808"), es), refused},
		{"B4 exp is 2^63-1", forge(goodES, body("EXP", "9223372036854775807"), es), refused},
		{"B4 exp is a fraction", forge(goodES, body("EXP", unix(time.Now().Add(time.Hour))+".5"), es), refused},
		{"B4 exp has an exponent", forge(goodES, body("EXP", "4e9"), es), refused},
		{"B4 exp is negative", forge(goodES, body("EXP", "-1"), es), refused},
		{"B4 exp is NaN", forge(goodES, body("EXP", "NaN"), es), foreign}, // not JSON, so not a token
		{"B4 exp is a string", forge(goodES, body("EXP", `"9999999999"`), es), refused},
		{"B4 exp is null", forge(goodES, body("EXP", "null"), es), refused},

		{"B6 another issuer", forge(goodES, body(issuer, "https://other.example"), es), foreign},
		{"B6 an issuer that begins like ours", forge(goodES, body(issuer, issuer+".attacker.example"), es), foreign},
		{"B6 an issuer that ours begins like", forge(goodES, body(issuer, "https://front"), es), foreign},
		{"B6 iss twice", forge(goodES, dup, es), refused},
		{"B6 iss twice, once in capitals", forge(goodES, strings.Replace(dup, `"iss":"https://a`, `"ISS":"https://a`, 1), es), refused},
		{"B6 a nested member twice", forge(goodES, body(`"uid":"sa-1"`, `"uid":"sa-2","uid":"sa-1"`), es), refused},
		{"B6 something after the claims", forge(goodES, body()+`{}`, es), foreign},

		{"B7 five parts", "a.b.c.d.e", foreign},
		{"B7 a million dots", strings.Repeat(".", 1_000_000), refused},
		{"B7 16 KiB of dots", strings.Repeat(".", credential.MaxTokenBytes), foreign},
		{"B7 eight megabytes", forge(goodES, body(`"id-1"`, `"`+strings.Repeat("x", 8<<20)+`"`), es), refused},
		{"B7 nested a thousand deep", forge(goodES, body(`"id-1"`, strings.Repeat("[", 1000)+strings.Repeat("]", 1000)), es), refused},

		{"a subject that is not the claim's account", forge(goodES, body("account:ns:robot", "account:ns:admin"), es), refused},
		{"no private claim", forge(goodES, body(`"kubernetes.io"`, `"other.io"`), es), refused},
		{"a bound pod without a uid", forge(goodES, body(`"serviceaccount":`, `"pod":{"name":"pod"},"serviceaccount":`), es), refused},
		{"base64 with stray bits", strayBits(forge(goodES, body(), es)), refused},
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
					t.Fatalf("%s: %s (%v), want %s", again, got, err, tt.want)
				}
				if ok && response.User.GetName() != "system:serviceaccount:ns:robot" {
					t.Fatalf("user %q", response.User.GetName())
				}
			}
		})
	}
}

// strayBits spells the same signature in another way.
func strayBits(token string) string {
	last := strings.IndexByte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", token[len(token)-1])
	return token[:len(token)-1] + string("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[last|1])
}

func TestAudiencesOfTheContext(t *testing.T) {
	tokens := newTokens(t)
	token, _, err := tokens.Issue(t.Context(), IssueRequest{Namespace: "ns", Name: "robot", Spec: spec("ext-a", "ext-b")})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("B3 the intersection is answered", func(t *testing.T) {
		ctx := authenticator.WithAudiences(t.Context(), authenticator.Audiences{"ext-c", "ext-b"})
		response, ok, err := tokens.AuthenticateToken(ctx, token)
		if err != nil || !ok || !reflect.DeepEqual(response.Audiences, authenticator.Audiences{"ext-b"}) {
			t.Fatalf("%+v, %t, %v", response, ok, err)
		}
	})
	t.Run("B3 a token for an extension server is not good for the front door", func(t *testing.T) {
		if _, ok, err := tokens.AuthenticateToken(t.Context(), token); ok || err == nil {
			t.Fatalf("%t, %v", ok, err)
		}
	})
}

func TestBoundObjects(t *testing.T) {
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
			token, _, err := tokens.Issue(t.Context(), IssueRequest{Namespace: "ns", Name: "robot", Spec: boundTo(tt.bound)})
			if err != nil {
				t.Fatal(err)
			}
			// Once while all is well, so that what is remembered of the token is what could go wrong.
			if _, ok, err := tokens.AuthenticateToken(t.Context(), token); !ok || err != nil {
				t.Fatalf("before: %t, %v", ok, err)
			}
			tt.change(live[tt.key])
			if tt.remove {
				delete(live, tt.key)
			}
			if _, ok, err := tokens.AuthenticateToken(t.Context(), token); ok != tt.good {
				t.Fatalf("after: %t, %v", ok, err)
			}
		})
	}
}

func TestExpiryIsNotRemembered(t *testing.T) {
	tokens := newTokens(t)
	keys()
	synctest.Test(t, func(t *testing.T) {
		token, expires, err := tokens.Issue(t.Context(), IssueRequest{Namespace: "ns", Name: "robot"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(expires) + leeway - 2*time.Second)
		if _, ok, err := tokens.AuthenticateToken(t.Context(), token); !ok {
			t.Fatalf("within the leeway: %v", err)
		}
		time.Sleep(3 * time.Second)
		if _, ok, _ := tokens.AuthenticateToken(t.Context(), token); ok {
			t.Fatal("a token that was good a moment ago is still good after it expired")
		}
	})
}

func TestLookupThatFails(t *testing.T) {
	tokens := newTokens(t, func(c *Config) { c.Lookup = failing{} })
	token := forge(`{"alg":"ES256","kid":"`+keyID(t, keys().ec)+`"}`, body(), signES256(keys().ec))
	if _, ok, err := tokens.AuthenticateToken(t.Context(), token); ok || !errors.Is(err, errStorage) {
		t.Fatalf("%t, %v; a token must not be good because nobody could be asked", ok, err)
	}
}

var errStorage = errors.New("storage is away")

type failing struct{ objects }

func (failing) GetServiceAccount(context.Context, string, string) (*corev1.ServiceAccount, error) {
	return nil, errStorage
}

// FuzzToken: no input makes the parser panic, no input without our signature is good, and what the strict reader
// accepts the library reads in the same way.
func FuzzToken(f *testing.F) {
	tokens := newTokens(f)
	kid := keyID(f, keys().ec)
	f.Add(forge(`{"alg":"ES256","kid":"`+kid+`"}`, body(), nil))
	f.Add(forge(`{"alg":"none"}`, `{"iss":"`+issuer+`"}`, nil))
	f.Add(forge(`{"alg":"ES256","kid":"`+kid+`"}`, `{"iss":"x","iss":"`+issuer+`"}`, nil))
	f.Add("a.b.c")
	f.Add("...")
	f.Add(base64.RawURLEncoding.EncodeToString([]byte(`{"a":[{"b":1}],"a":2}`)))
	f.Fuzz(func(t *testing.T, token string) {
		if _, ok, _ := tokens.AuthenticateToken(t.Context(), token); ok {
			t.Fatalf("accepted %q", token)
		}
		if _, ok, _ := tokens.AuthenticateToken(t.Context(), forge(`{"alg":"ES256","kid":"`+kid+`"}`, token, nil)); ok {
			t.Fatalf("accepted claims %q", token)
		}
	})
}
