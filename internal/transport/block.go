package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// Block marks the backend as unresponsive because of why. Until Unblock, requests that wait for a connection and new
// requests fail with ErrUnresponsive. With silent, GET and HEAD requests that wait for response headers fail too.
// Other requests keep waiting, because the backend may act on them and the callers could not repeat them. Probes are
// not affected.
//
// A connection that is found to be dead fails with all its requests, independently of Block.
func (b *Backend) Block(why error, silent bool) {
	cause := unresponsive(why)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.blocked.Store(&cause)
	for _, m := range *b.candidates.Load() {
		m.requests.block(cause, time.Time{}, silent)
	}
}

// Unblock reverts Block.
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

// unresponsive returns an ErrUnresponsive with a reason.
func unresponsive(why error) error { return fmt.Errorf("%w: %w", ErrUnresponsive, why) }

// block makes requests fail until the given time, or until unblock if it is zero, and cancels dials. With waiting,
// GET and HEAD requests that wait for response headers fail too.
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
		p.spawn(func() { c.AbandonWaiting(why) }) // asynchronous, because ending a stream acquires mu
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

// blockedBy returns the error for requests while the pool is blocked, or nil. It is called with mu held.
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

// connect dials unless the pool is blocked, and cancels the dial when it becomes blocked. It also returns the scope
// of the dial.
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

// withCause returns err, or the reason for which scope was canceled.
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
