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

// DefaultTTL is the default lifetime of a token, as in kubeadm.
const DefaultTTL = 24 * time.Hour

const (
	// tokenKeys is the prefix of tokens among Portico's own keys in etcd.
	tokenKeys = "cluster/tokens/"
	// maxTokens limits the number of tokens.
	maxTokens = 100
	// maxTTL limits the lifetime of a token that expires.
	maxTTL = 10 * 365 * 24 * time.Hour
)

// Store stores tokens. store.Store implements it.
type Store interface {
	Get(ctx context.Context, key string) (value []byte, ok bool, err error)
	Put(ctx context.Context, key string, value []byte) error
	PutFor(ctx context.Context, key string, value []byte, ttl time.Duration) error
	Delete(ctx context.Context, key string) error
	List(ctx context.Context, prefix string) (map[string][]byte, error)
}

// TokenInfo contains the data of a token that is not secret.
type TokenInfo struct {
	ID          string    `json:"id"`
	Description string    `json:"description,omitempty"`
	Created     time.Time `json:"created"`
	// Expires is zero for a token that does not expire.
	Expires time.Time `json:"expires,omitzero"`
}

// storedToken is a token as it is stored.
type storedToken struct {
	TokenInfo
	// Hash is the SHA-256 of the secret. A secret of 256 random bits does not need a slow hash.
	Hash string `json:"hash"`
}

// Tokens manages the tokens of a cluster. All methods are safe for concurrent use.
type Tokens struct {
	store Store
	ca    func() *pki.Authority
	now   func() time.Time
}

// NewTokens returns the tokens of the cluster with the CA that ca returns.
func NewTokens(s Store, ca func() *pki.Authority) *Tokens {
	return &Tokens{store: s, ca: ca, now: time.Now}
}

// Errors of Tokens.
var (
	// ErrToken is returned for a token that is unknown, expired or deleted, and for a wrong secret.
	ErrToken = errors.New("the join token is not valid, or has expired; make another one at a member of the cluster: aggregator token create")
	// ErrNoToken is returned if no token has the ID.
	ErrNoToken = errors.New("there is no such token")
	// ErrTTL is returned for an invalid lifetime.
	ErrTTL = fmt.Errorf("the life of a token is from a minute to %s, or 0: it does not expire", maxTTL)
	// ErrTooManyTokens is returned if maxTokens exist.
	ErrTooManyTokens = fmt.Errorf("there are %d tokens; delete some", maxTokens)
)

// Create creates a token. With a ttl of 0 it does not expire.
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

// List returns the tokens, oldest first.
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

// Delete deletes a token, so that it is not valid any more.
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

// Check returns ErrToken unless the ID and the secret belong to a valid token.
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
	// Both hashes have the same length, even without a token, so that the time of the comparison does not reveal
	// anything.
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
