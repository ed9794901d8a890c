package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// Block says that the backend answers nobody, and why. Requests that wait for a connection fail now with ErrUnresponsive, and
// so do further requests, until Unblock. With silent, GET and HEAD requests that wait for response headers fail too; requests
// that the backend may act on do not, because their callers could not repeat them. Probes are not affected.
//
// A connection that is known to be dead ends by itself, with all its requests.
func (b *Backend) Block(why error, silent bool) {
	cause := unresponsive(why)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.blocked.Store(&cause)
	for _, m := range *b.candidates.Load() {
		m.requests.block(cause, time.Time{}, silent)
	}
}

// Unblock takes back Block.
func (b *Backend) Unblock() {
	if b.blocked.Load() == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.blocked.Store(nil)
	for _, m := range *b.candidates.Load() {
		m.requests.unblock()
	}
}

// unresponsive is ErrUnresponsive for a reason.
func unresponsive(why error) error { return fmt.Errorf("%w: %w", ErrUnresponsive, why) }

// block has requests fail until then, or until unblock if that is zero, and ends dials. With waiting, GET and HEAD requests
// that wait for response headers fail too.
func (p *connPool) block(why error, until time.Time, waiting bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.draining {
		return
	}
	p.blocked, p.blockedUntil = why, until
	p.cancelDials(why)
	p.dialScope, p.cancelDials = context.WithCancelCause(p.ctx)
	if !waiting {
		return
	}
	for _, c := range p.conns {
		p.spawn(func() { c.AbandonWaiting(why) }) // streams that end are released, which takes mu
	}
	for c := range p.http1Conns {
		p.spawn(func() { c.abandon(why) }) // as above
	}
}

func (p *connPool) unblock() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocked = nil
}

// blockedBy is the error of requests while the pool is blocked, else nil. Called with mu held.
func (p *connPool) blockedBy() error {
	if p.blocked == nil {
		return nil
	}
	if !p.blockedUntil.IsZero() && !time.Now().Before(p.blockedUntil) {
		p.blocked = nil
		return nil
	}
	return &connectError{op: OpDial, err: p.blocked}
}

// connect dials unless the pool is blocked, or until it is. It returns the scope of the dial too.
func (p *connPool) connect(ctx context.Context, http1Only bool) (context.Context, *tls.Conn, net.Conn, error) {
	p.mu.Lock()
	scope, blocked := p.dialScope, p.blockedBy()
	p.mu.Unlock()
	if blocked != nil {
		return scope, nil, nil, blocked
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(scope, cancel)()
	conn, raw, err := p.dialer.connect(ctx, http1Only)
	return scope, conn, raw, withCause(scope, err)
}

// withCause is err with the reason why scope ended, if it did.
func withCause(scope context.Context, err error) error {
	if err == nil || scope.Err() == nil {
		return err
	}
	cause := context.Cause(scope)
	if !errors.Is(cause, ErrUnresponsive) {
		return err // the pool was drained
	}
	op := OpDial
	var connect *connectError
	if errors.As(err, &connect) {
		op = connect.op
	}
	return &connectError{op: op, err: cause}
}
