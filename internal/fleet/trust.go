package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"portico.dev/internal/fleet/identity"
	"portico.dev/internal/fleet/v1alpha1"
)

// trust is whether the API servers of a cluster trust the certificate of a connection as a front proxy's. If they authenticate its
// own user instead, as they do with an administrator's certificate, every user of the front door would have the rights of that user.
type trust struct {
	mu       sync.Mutex // held while the API servers are asked
	verified bool
	err      error
	at       time.Time // of err
}

// trustRetry is how long the result of a failed check is used.
const trustRetry = 2 * time.Second

// check returns nil once the API servers have authenticated a test user.
func (t *trust) check(ctx context.Context, m *member) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.verified || t.err != nil && time.Since(t.at) < trustRetry {
		return t.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rightsTimeout)
	defer cancel()
	missing, err := identity.Missing(ctx, m.link, identity.Needs{Mode: v1alpha1.FrontProxy, Tokens: v1alpha1.NoTokens})
	if err == nil && len(missing) > 0 {
		err = errors.New(identity.Message(missing))
	}
	if t.verified, t.at = err == nil, time.Now(); err != nil {
		err = fmt.Errorf("cluster %s cannot be used in mode FrontProxy: %w", m.name, err)
	}
	t.err = err
	return t.err
}
