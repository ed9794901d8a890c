package extension

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Truncated lists are kept complete for subsequent pages, within these limits. pageTTL is the time for which etcd keeps a
// revision under kube-apiserver.
const (
	pageTTL      = 5 * time.Minute
	maxPages     = 256
	maxPageItems = 200_000
)

// token is the content of a continue parameter. The key of a page contains the caller and the selection as well as the token,
// so that the token of another caller or list matches no page.
type token struct {
	Version string `json:"rv,omitempty"`
	Nonce   string `json:"nonce,omitempty"` // set for lists without a version
	Start   int    `json:"start"`
}

func (t token) String() string {
	raw, _ := json.Marshal(t) // strings and a number always marshal
	return base64.RawURLEncoding.EncodeToString(raw)
}

func parseToken(text string) (token, error) {
	var t token
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(raw, &t)
	}
	if err == nil && t.Start <= 0 {
		err = fmt.Errorf("starts at %d", t.Start)
	}
	if err != nil {
		return t, apierrors.NewBadRequest("continue: not a token that this server gave; start a new list without it")
	}
	return t, nil
}

// errPageGone returns the 410 for a list that has expired. Pagers restart the list when they see its reason.
func errPageGone() error {
	return apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. " +
		"You must start a new list without the continue parameter.")
}

type pageKey [sha256.Size]byte

// page is a list that was truncated.
type page struct {
	items   []object
	expires time.Time
}

// pages keeps truncated lists and evicts the oldest ones first.
type pages struct {
	mu    sync.Mutex // guards the fields below
	kept  *simplelru.LRU[pageKey, page]
	items int
}

func newPages() *pages {
	p := &pages{}
	kept, err := simplelru.NewLRU(maxPages, func(_ pageKey, gone page) { p.items -= len(gone.items) })
	if err != nil {
		panic("extension: " + err.Error()) // fails only for a size below one
	}
	p.kept = kept
	return p
}

func (p *pages) find(k pageKey, now time.Time) ([]object, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep(now)
	// Peek does not change the order of the entries, which must remain the order of age for sweep.
	found, ok := p.kept.Peek(k)
	return found.items, ok
}

func (p *pages) keep(k pageKey, items []object, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep(now)
	p.kept.Remove(k)
	p.kept.Add(k, page{items, now.Add(pageTTL)})
	p.items += len(items)
	for p.items > maxPageItems && p.kept.Len() > 1 {
		p.kept.RemoveOldest()
	}
}

// sweep removes expired pages. The caller holds mu.
func (p *pages) sweep(now time.Time) {
	for {
		_, oldest, ok := p.kept.GetOldest()
		if !ok || now.Before(oldest.expires) {
			return
		}
		p.kept.RemoveOldest()
	}
}

// pageKey returns the key of the list that matches sel.
func (s *resourceHandler) pageKey(who [sha256.Size]byte, sel selection, t token) pageKey {
	raw, _ := json.Marshal([]any{s.number, who[:], sel.namespace, sel.labels.String(), sel.fields.String(), t.Version, t.Nonce})
	return sha256.Sum256(raw)
}

// cut truncates the list to limit items, keeps the complete list for subsequent pages, and sets Continue and
// RemainingItemCount in meta.
func (s *resourceHandler) cut(l *listing, limit int, start token, who [sha256.Size]byte) {
	rest := l.items
	if start.Start > 0 {
		rest = rest[start.Start:]
	}
	if limit <= 0 || len(rest) <= limit {
		l.items = rest
		return
	}
	next := token{Version: l.meta.ResourceVersion, Nonce: start.Nonce, Start: start.Start + limit}
	if next.Version == "" && next.Nonce == "" {
		next.Nonce = rand.Text()
	}
	if start.Start == 0 {
		s.pages.keep(s.pageKey(who, l.selection, next), l.items, time.Now())
	}
	l.items = rest[:limit]
	l.meta.Continue = next.String()
	if l.selection.selectsAll() {
		left := int64(len(rest) - limit)
		l.meta.RemainingItemCount = &left
	}
}

// resume returns the list of a continue token.
func (s *resourceHandler) resume(text string, sel selection, who [sha256.Size]byte) (*listing, token, error) {
	t, err := parseToken(text)
	if err != nil {
		return nil, t, err
	}
	items, ok := s.pages.find(s.pageKey(who, sel, t), time.Now())
	if !ok {
		return nil, t, errPageGone()
	}
	if t.Start >= len(items) {
		return nil, t, apierrors.NewBadRequest("continue: starts beyond the end of the list; start a new list without it")
	}
	return &listing{selection: sel, items: items, meta: metav1.ListMeta{ResourceVersion: t.Version}}, t, nil
}
