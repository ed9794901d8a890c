// Package tokenreview authenticates bearer tokens by TokenReviews of an API server, and caches the results.
package tokenreview

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/auth/authn"
	"portico.dev/internal/auth/ttlcache"
)

// Path is where TokenReviews are created.
const Path = "/apis/authentication.k8s.io/v1/tokenreviews"

const (
	rememberGood = 10 * time.Second
	rememberBad  = 2 * time.Second // the service account may be about to be created
	// rememberTokens is the number of cached results. One takes about a kilobyte.
	rememberTokens = 4096
)

// Send creates a TokenReview and decodes the response into reply. It must return within a time limit.
type Send func(ctx context.Context, review, reply *authenticationv1.TokenReview) error

// Reviewer authenticates tokens. It is safe for concurrent use.
type Reviewer struct {
	send     Send
	results  *ttlcache.Cache[[sha256.Size]byte, result]
	inFlight singleflight.Group
}

// result is the result of a TokenReview.
type result struct {
	user      user.Info // nil if the token is not valid
	audiences []string
	reason    string
}

// New returns a Reviewer.
func New(send Send) *Reviewer {
	return &Reviewer{send: send, results: ttlcache.New[[sha256.Size]byte, result](rememberTokens)}
}

// AuthenticateToken implements authenticator.Token. Concurrent reviews of one token are merged.
func (r *Reviewer) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	wanted, hasWanted := authenticator.AudiencesFrom(ctx)
	key := sha256.Sum256([]byte(token + "\x00" + strings.Join(wanted, "\x00")))
	answer, known := r.results.Get(key)
	if !known {
		// The review is detached from the context of the first request, because other requests wait for its result.
		v, err, _ := r.inFlight.Do(string(key[:]), func() (any, error) {
			return r.review(context.WithoutCancel(ctx), token, wanted, key)
		})
		if err != nil {
			return nil, false, fmt.Errorf("review token: %w", err)
		}
		answer = v.(result)
	}
	switch {
	case answer.reason != "":
		return nil, false, errors.New(answer.reason)
	case answer.user == nil:
		return nil, false, authn.ErrInvalidToken
	}
	response := &authenticator.Response{User: answer.user, Audiences: answer.audiences}
	if hasWanted {
		// A server without audience support returns no audiences; the token may be for another audience (B3).
		if response.Audiences = wanted.Intersect(answer.audiences); len(response.Audiences) == 0 {
			return nil, false, errors.New("the token is not for this server's audience")
		}
	}
	return response, true, nil
}

func (r *Reviewer) review(ctx context.Context, token string, audiences []string, key [sha256.Size]byte) (result, error) {
	review := &authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "TokenReview"},
		Spec:     authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences},
	}
	var reply authenticationv1.TokenReview
	if err := r.send(ctx, review, &reply); err != nil {
		return result{}, err
	}
	u := reply.Status.User
	if !reply.Status.Authenticated || u.Username == "" {
		answer := result{reason: reply.Status.Error}
		r.results.Add(key, answer, time.Now().Add(rememberBad))
		return answer, nil
	}
	info := &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups}
	for k, v := range u.Extra {
		if info.Extra == nil {
			info.Extra = make(map[string][]string, len(u.Extra))
		}
		info.Extra[k] = v
	}
	answer := result{user: info, audiences: reply.Status.Audiences}
	r.results.Add(key, answer, time.Now().Add(rememberGood))
	return answer, nil
}
