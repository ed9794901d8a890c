package cluster

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"portico.dev/internal/pki"
)

// DefaultTTL is how long a token can be used, as kubeadm's.
const DefaultTTL = 24 * time.Hour

const (
	// tokenKeys are the own keys of etcd below which tokens are.
	tokenKeys = "cluster/tokens/"
	// maxTokens bounds the tokens that there are at a time.
	maxTokens = 100
	// maxTTL bounds the life of a token that expires.
	maxTTL = 10 * 365 * 24 * time.Hour
)

// Store is where tokens are: store.Store.
type Store interface {
	Get(ctx context.Context, key string) (value []byte, ok bool, err error)
	Put(ctx context.Context, key string, value []byte) error
	PutFor(ctx context.Context, key string, value []byte, ttl time.Duration) error
	Delete(ctx context.Context, key string) error
	List(ctx context.Context, prefix string) (map[string][]byte, error)
}

// TokenInfo is what may be known of a token.
type TokenInfo struct {
	ID          string    `json:"id"`
	Description string    `json:"description,omitempty"`
	Created     time.Time `json:"created"`
	// Expires is zero for a token that does not.
	Expires time.Time `json:"expires,omitzero"`
}

// storedToken is a token as it is stored.
type storedToken struct {
	TokenInfo
	// Hash is the SHA-256 of the secret. A secret of 256 random bits needs no slow one.
	Hash string `json:"hash"`
}

// Tokens are the tokens of a cluster. All methods are safe for concurrent use.
type Tokens struct {
	store Store
	ca    func() *pki.Authority
	now   func() time.Time
}

// NewTokens returns the tokens of the cluster whose CA is now what ca returns.
func NewTokens(s Store, ca func() *pki.Authority) *Tokens {
	return &Tokens{store: s, ca: ca, now: time.Now}
}

// Errors about tokens.
var (
	// ErrToken is for a token that was never made, has expired, or was deleted, and for a wrong secret.
	ErrToken = errors.New("the join token is not valid, or has expired; make another one at a member of the cluster: aggregator token create")
	// ErrNoToken is when there is no token with that ID.
	ErrNoToken = errors.New("there is no such token")
	// ErrTTL is for the life of a token.
	ErrTTL = fmt.Errorf("the life of a token is from a minute to %s, or 0: it does not expire", maxTTL)
	// ErrTooManyTokens is when there are maxTokens.
	ErrTooManyTokens = fmt.Errorf("there are %d tokens; delete some", maxTokens)
)

// Create makes a token. With a ttl of 0 it does not expire.
func (t *Tokens) Create(ctx context.Context, ttl time.Duration, description string) (Token, TokenInfo, error) {
	if ttl != 0 && (ttl < time.Minute || ttl > maxTTL) {
		return Token{}, TokenInfo{}, ErrTTL
	}
	all, err := t.store.List(ctx, tokenKeys)
	if err != nil {
		return Token{}, TokenInfo{}, err
	}
	if len(all) >= maxTokens {
		return Token{}, TokenInfo{}, ErrTooManyTokens
	}
	token, now := NewToken(t.ca().Certificate), t.now().UTC().Truncate(time.Second)
	stored := storedToken{TokenInfo{ID: token.ID, Description: description, Created: now}, hashOf(token.Secret)}
	if ttl > 0 {
		stored.Expires = now.Add(ttl)
	}
	text, err := json.Marshal(stored)
	if err != nil {
		return Token{}, TokenInfo{}, err
	}
	if ttl > 0 {
		err = t.store.PutFor(ctx, tokenKeys+token.ID, text, ttl)
	} else {
		err = t.store.Put(ctx, tokenKeys+token.ID, text)
	}
	return token, stored.TokenInfo, err
}

// List returns the tokens, the oldest first.
func (t *Tokens) List(ctx context.Context) ([]TokenInfo, error) {
	all, err := t.store.List(ctx, tokenKeys)
	if err != nil {
		return nil, err
	}
	infos := make([]TokenInfo, 0, len(all))
	for key, text := range all {
		var s storedToken
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, fmt.Errorf("read %s: %w", key, err)
		}
		infos = append(infos, s.TokenInfo)
	}
	slices.SortFunc(infos, func(a, b TokenInfo) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return infos, nil
}

// Delete makes a token useless.
func (t *Tokens) Delete(ctx context.Context, id string) error {
	if !idPattern.MatchString(id) {
		return ErrNoToken
	}
	_, ok, err := t.store.Get(ctx, tokenKeys+id)
	switch {
	case err != nil:
		return err
	case !ok:
		return ErrNoToken
	}
	return t.store.Delete(ctx, tokenKeys+id)
}

// Check is ErrToken unless a credential is that of a token that can be used.
func (t *Tokens) Check(ctx context.Context, id, secret string) error {
	if !idPattern.MatchString(id) || !secretPattern.MatchString(secret) {
		return ErrToken
	}
	text, ok, err := t.store.Get(ctx, tokenKeys+id)
	if err != nil {
		return err
	}
	var s storedToken
	if ok {
		if err := json.Unmarshal(text, &s); err != nil {
			return fmt.Errorf("read token %s: %w", id, err)
		}
	}
	// Both hashes have one length, also when there is no token: nothing can be learned from the time that it takes.
	if len(s.Hash) != hex.EncodedLen(sha256.Size) {
		s.Hash = strings.Repeat("-", hex.EncodedLen(sha256.Size))
	}
	same := subtle.ConstantTimeCompare([]byte(s.Hash), []byte(hashOf(secret))) == 1
	if !same || !s.Expires.IsZero() && !t.now().Before(s.Expires) {
		return ErrToken
	}
	return nil
}

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
