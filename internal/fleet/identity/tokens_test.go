package identity

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"portico.dev/internal/auth/authn"
	"portico.dev/internal/auth/authtest"
	"portico.dev/internal/fleet/v1alpha1"
)

// reviews answers TokenReviews. The token "good" is robot's.
type reviews struct {
	count   atomic.Int32
	respond func(*http.Request) (*http.Response, error) // may be nil
}

// RoundTrip implements http.RoundTripper.
func (c *reviews) RoundTrip(r *http.Request) (*http.Response, error) {
	c.count.Add(1)
	if c.respond != nil {
		return c.respond(r)
	}
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		return nil, err
	}
	if review.Spec.Token == "good" {
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "system:serviceaccount:ns:robot"}}
	}
	body, err := json.Marshal(review)
	return response(http.StatusCreated, string(body)), err
}

func response(code int, body string) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

func withToken(t testing.TB, token string) *http.Request {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://front/clusters/a/api", nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

func TestTokensAreAuthenticatedByTheCluster(t *testing.T) {
	tokens := NewTokens(&reviews{}, v1alpha1.Impersonate)
	r := withToken(t, "good")
	got, ok, err := tokens.AuthenticateRequest(r)
	if err != nil || !ok || got.User.GetName() != "system:serviceaccount:ns:robot" || r.Header.Get("Authorization") != "" {
		t.Fatalf("AuthenticateRequest(good) = %+v, %t, %v with the header %v, want robot and no token", got, ok, err, r.Header)
	}
	if _, isTokenUser := got.User.(*tokenUser); !isTokenUser {
		t.Errorf("user without system:authenticated = %T, want *tokenUser", got.User)
	}
	for _, token := range []string{"bad", strings.Repeat("x", authn.MaxTokenBytes+1)} {
		if got, ok, err := tokens.AuthenticateRequest(withToken(t, token)); ok || err == nil {
			t.Errorf("AuthenticateRequest(%.10s) = %+v, %t, %v, want an error", token, got, ok, err)
		}
	}
	if got, ok, err := tokens.AuthenticateRequest(withToken(t, "")); ok || err != nil {
		t.Errorf("AuthenticateRequest without a token = %+v, %t, %v, want false and no error", got, ok, err)
	}
}

func TestReviewsAreCachedAndMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := &reviews{}
		tokens := NewTokens(cluster, v1alpha1.Impersonate)
		expect := func(token string, want int32) {
			t.Helper()
			_, _, _ = tokens.AuthenticateRequest(withToken(t, token))
			if got := cluster.count.Load(); got != want {
				t.Errorf("%d reviews after %s, want %d", got, token, want)
			}
		}
		expect("good", 1)
		expect("bad", 2)
		time.Sleep(2*time.Second - time.Nanosecond)
		expect("bad", 2)
		time.Sleep(time.Nanosecond)
		expect("bad", 3)
		time.Sleep(8*time.Second - time.Nanosecond)
		expect("good", 3)
		time.Sleep(time.Nanosecond)
		expect("good", 4)

		arrived, release := make(chan struct{}), make(chan struct{})
		cluster.respond = func(*http.Request) (*http.Response, error) {
			close(arrived)
			<-release
			return response(http.StatusForbidden, "{}"), nil
		}
		for range 10 {
			go func() { _, _, _ = tokens.AuthenticateRequest(withToken(t, "other")) }()
		}
		<-arrived
		synctest.Wait()
		close(release)
		synctest.Wait()
		if got := cluster.count.Load(); got != 5 {
			t.Errorf("%d reviews after ten requests with one token, want 5", got)
		}
	})
}

// TestA60ReviewsAreBounded checks that a cluster that does not answer, and responses of any size, cost limited time and memory.
func TestA60ReviewsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := &reviews{respond: func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, context.Cause(r.Context())
		}}
		tokens := NewTokens(cluster, v1alpha1.Impersonate)
		began, failed := time.Now(), make(chan error, 2*maxReviews)
		for i := range 2 * maxReviews {
			go func() {
				_, _, err := tokens.AuthenticateRequest(withToken(t, fmt.Sprint("token-", i)))
				failed <- err
			}()
		}
		for range 2 * maxReviews {
			if err := <-failed; err == nil {
				t.Error("a token was accepted without a response, want an error")
			}
		}
		if took, got := time.Since(began), cluster.count.Load(); took != timeout || got > maxReviews || got < maxReviews/2 {
			t.Errorf("%d reviews in %s, want at most %d in %s", got, took, maxReviews, timeout)
		}
		cluster.respond = func(*http.Request) (*http.Response, error) {
			return response(http.StatusCreated, `{"status":{"authenticated":true,"user":{"username":"a"}}}`+strings.Repeat(" ", maxResponse)), nil
		}
		if _, ok, err := tokens.AuthenticateRequest(withToken(t, "large")); ok || err == nil || !strings.Contains(err.Error(), "larger than") {
			t.Errorf("review with a large response = %t, %v, want an error about its size", ok, err)
		}
	})
}

func TestFailedReviewsAreNotCached(t *testing.T) {
	cluster := &reviews{respond: func(*http.Request) (*http.Response, error) {
		return response(http.StatusForbidden, `{"kind":"Status","message":"no right"}`), nil
	}}
	tokens := NewTokens(cluster, v1alpha1.Impersonate)
	if _, ok, err := tokens.AuthenticateRequest(withToken(t, "good")); ok || err == nil || !strings.Contains(err.Error(), "403: no right") {
		t.Fatalf("AuthenticateRequest with a refused review = %t, %v, want 403: no right", ok, err)
	}
	cluster.respond = nil
	if _, ok, err := tokens.AuthenticateRequest(withToken(t, "good")); !ok || err != nil {
		t.Errorf("AuthenticateRequest after the failure = %t, %v, want true", ok, err)
	}
}

// TestReviewsInModeFrontProxyHaveAUser checks that the API servers authenticate the front door's own requests.
func TestReviewsInModeFrontProxyHaveAUser(t *testing.T) {
	f := newFront(t, v1alpha1.FrontProxy, Rules{})
	got, ok, err := f.tokens.AuthenticateRequest(withToken(t, robotToken))
	if err != nil || !ok || got.User.GetName() != "system:serviceaccount:ns:robot" {
		t.Fatalf("AuthenticateRequest = %+v, %t, %v, want robot", got, ok, err)
	}
}

func TestPasses(t *testing.T) {
	signed := func(head, claims string) string { return authtest.Token(head, claims, nil) + "c2ln" }
	jwt := func(claims string) string { return signed(`{"alg":"RS256","kid":"cluster"}`, claims) }
	const bound = `{"iss":"https://cluster","sub":"system:serviceaccount:ns:robot","kubernetes.io":{"namespace":"ns"}}`
	for name, tt := range map[string]struct {
		token                string
		all, serviceAccounts bool
	}{
		"no token":                    {"", false, false},
		"not a JWT":                   {"abc", true, false},
		"too long":                    {jwt(`{"iss":"` + strings.Repeat("x", authn.MaxTokenBytes) + `"}`), false, false},
		"service account":             {jwt(bound), true, true},
		"service account, old format": {jwt(`{"iss":"kubernetes/serviceaccount","sub":"system:serviceaccount:ns:robot","kubernetes.io/serviceaccount/namespace":"ns"}`), true, true},
		"of the front door":           {signed(`{"alg":"RS256","kid":"front"}`, bound), false, false},
		"no key":                      {signed(`{"alg":"RS256"}`, bound), true, true},
		"two keys":                    {signed(`{"kid":"front","kid":"cluster"}`, bound), true, false},
		"issuer in another case":      {jwt(strings.ReplaceAll(bound, `"iss"`, `"ISS"`)), true, true},
		"two issuers":                 {jwt(strings.ReplaceAll(bound, `{"iss"`, `{"iss":"https://front","iss"`)), true, false},
		"two issuers, two cases":      {jwt(strings.ReplaceAll(bound, `{"iss"`, `{"ISS":"https://front","iss"`)), true, false},
		"user":                        {jwt(`{"iss":"https://idp","sub":"alice"}`), true, false},
		"only the subject":            {jwt(`{"iss":"https://idp","sub":"system:serviceaccount:ns:robot"}`), true, false},
		"null claim":                  {jwt(`{"iss":"https://idp","sub":"system:serviceaccount:ns:robot","kubernetes.io":null}`), true, false},
		"only the claim":              {jwt(`{"iss":"https://idp","sub":"alice","kubernetes.io":{"namespace":"ns"}}`), true, false},
		"another namespace":           {jwt(strings.ReplaceAll(bound, `"namespace":"ns"`, `"namespace":"kube-system"`)), true, false},
		"incomplete subject":          {jwt(strings.ReplaceAll(bound, `ns:robot`, `ns:`)), true, false},
		"claims are not JSON":         {"e30.x.y", true, false},
	} {
		for policy, want := range map[v1alpha1.TokenPolicy]bool{
			v1alpha1.NoTokens: false, v1alpha1.AllTokens: tt.all, v1alpha1.ServiceAccountTokens: tt.serviceAccounts, "Unknown": false,
		} {
			if got := Passes(policy, withToken(t, tt.token), isOwn); got != want {
				t.Errorf("%s: Passes(%s) = %t, want %t", name, policy, got, want)
			}
		}
	}
	two := withToken(t, "a")
	two.Header.Add("Authorization", "Bearer b")
	if Passes(v1alpha1.AllTokens, two, isOwn) {
		t.Error("Passes for two tokens = true, want false")
	}
}

func TestPassesIsFreeWithoutToken(t *testing.T) {
	r := withToken(t, "")
	if n := testing.AllocsPerRun(100, func() { Passes(v1alpha1.ServiceAccountTokens, r, isOwn) }); n != 0 {
		t.Errorf("Passes without a token allocates %v times, want 0", n)
	}
	r = withToken(t, strings.Repeat("x", 1000))
	if n := testing.AllocsPerRun(100, func() { Passes(v1alpha1.ServiceAccountTokens, r, isOwn) }); n != 0 {
		t.Errorf("Passes with a token that is not a JWT allocates %v times, want 0", n)
	}
}
