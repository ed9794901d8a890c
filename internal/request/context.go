package request

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// Context is the context of one request: what the chain finds out about it, and its deadline. It is one value in place of
// one context for each fact; readers find each fact as if it had been put there by this package or by k8s.io/apiserver.
// A fact is set by the goroutine that serves the request, before the context is passed on. Contexts made from it may
// outlive the request, so it is never used again for another one.
//
// The deadline costs nothing until it is waited for. A proxied request has a timer of its own (the proxy ignores the
// deadline once response headers are written) and only asks when the deadline is.
type Context struct {
	context.Context // ends when the client leaves

	Info       *apirequest.RequestInfo
	User       user.Info
	Received   time.Time
	AuditID    string
	RemoteAddr string
	Credential Credential

	deadline time.Time // zero: none
	finished atomic.Bool
	arm      sync.Once
	armed    atomic.Pointer[deadlineContext]
}

// deadlineContext is the context that has the deadline, once it is waited for.
type deadlineContext struct {
	context.Context
	cancel context.CancelFunc
}

// SetDeadline gives the request its deadline, before the context is passed on.
func (c *Context) SetDeadline(at time.Time) { c.deadline = at }

// HasDeadline reports whether c has a deadline of its own.
func (c *Context) HasDeadline() bool { return !c.deadline.IsZero() }

// Finish is called when the request has been served.
func (c *Context) Finish() {
	c.finished.Store(true)
	if t := c.armed.Load(); t != nil {
		t.cancel()
	}
}

func (c *Context) withDeadline() *deadlineContext {
	c.arm.Do(func() {
		t := &deadlineContext{}
		t.Context, t.cancel = context.WithDeadline(c.Context, c.deadline)
		c.armed.Store(t)
	})
	t := c.armed.Load()
	if c.finished.Load() {
		t.cancel()
	}
	return t
}

// Deadline implements context.Context.
func (c *Context) Deadline() (time.Time, bool) {
	at, ok := c.Context.Deadline()
	if c.deadline.IsZero() || ok && at.Before(c.deadline) {
		return at, ok
	}
	return c.deadline, true
}

// Done implements context.Context.
func (c *Context) Done() <-chan struct{} {
	if c.deadline.IsZero() {
		return c.Context.Done()
	}
	return c.withDeadline().Done()
}

// AfterFunc is what package context asks for: without it, each context that is made from this one would cost a goroutine
// that waits.
func (c *Context) AfterFunc(f func()) (stop func() bool) {
	if c.deadline.IsZero() {
		return context.AfterFunc(c.Context, f)
	}
	return context.AfterFunc(c.withDeadline(), f)
}

// Err implements context.Context.
func (c *Context) Err() error {
	if c.deadline.IsZero() {
		return c.Context.Err()
	}
	if c.armed.Load() == nil && !c.finished.Load() && time.Now().Before(c.deadline) {
		return c.Context.Err()
	}
	return c.withDeadline().Err()
}

// Value implements context.Context.
func (c *Context) Value(key any) any {
	switch key {
	case libraryKeys.info:
		if c.Info != nil {
			return c.Info
		}
	case libraryKeys.user:
		if c.User != nil {
			return c.User
		}
	case libraryKeys.received:
		if !c.Received.IsZero() {
			return c.Received
		}
	case auditIDKey{}:
		if c.AuditID != "" {
			return &c.AuditID // a pointer costs no allocation
		}
	case credentialKey{}:
		return &c.Credential
	case remoteAddrKey{}:
		return &c.RemoteAddr
	case clientKey{}:
		if !c.deadline.IsZero() {
			return c.Context
		}
	}
	if t := c.armed.Load(); t != nil {
		return t.Value(key) // those of c.Context, and what package context looks for
	}
	return c.Context.Value(key)
}

type clientKey struct{}

// ClientContext is the context that ends when the client of ctx's request leaves: ctx without the deadline of its request,
// and ctx itself when nothing else is known.
func ClientContext(ctx context.Context) context.Context {
	if client, ok := ctx.Value(clientKey{}).(context.Context); ok {
		return client
	}
	return ctx
}

// libraryKeys are the keys of k8s.io/apiserver. It does not export them, and a context of its own for each fact would
// cost every request as many allocations.
var libraryKeys = func() (keys struct{ info, user, received any }) {
	keys.info = KeyOf(func(ctx context.Context) { apirequest.RequestInfoFrom(ctx) })
	keys.user = KeyOf(func(ctx context.Context) { apirequest.UserFrom(ctx) })
	keys.received = KeyOf(func(ctx context.Context) { apirequest.ReceivedTimestampFrom(ctx) })
	return keys
}()

// KeyOf is the key by which get looks for a value in a context.
func KeyOf(get func(context.Context)) any {
	r := &keyRecorder{Context: context.Background()}
	get(r)
	return r.key
}

// keyRecorder is a context that records the key that it is asked for.
type keyRecorder struct {
	context.Context
	key any
}

func (r *keyRecorder) Value(key any) any {
	r.key = key
	return nil
}

type auditIDKey struct{}

// WithAuditID adds the audit id of a request, which the server, the audit log and a backend share.
func WithAuditID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, auditIDKey{}, id)
}

// AuditID is the audit id of ctx's request, empty outside a request.
func AuditID(ctx context.Context) string {
	switch id := ctx.Value(auditIDKey{}).(type) {
	case *string: // of a Context
		return *id
	case string:
		return id
	}
	return ""
}

type credentialKey struct{}

// Credential is how a request was authenticated.
type Credential struct {
	// Kind is the kind of credential, empty for none.
	Kind string
	// Expires is when it ceases to be valid. Zero: never, or unknown.
	Expires time.Time
}

// NoteCredential records which kind of credential was accepted.
func NoteCredential(ctx context.Context, kind string) {
	if c, ok := ctx.Value(credentialKey{}).(*Credential); ok {
		c.Kind = kind
	}
}

// CredentialKind is the kind of credential that was accepted, empty before and outside a request.
func CredentialKind(ctx context.Context) string {
	if c, ok := ctx.Value(credentialKey{}).(*Credential); ok {
		return c.Kind
	}
	return ""
}

// NoteExpiry records until when a credential is valid. Of several that a request has, the first to expire counts.
func NoteExpiry(ctx context.Context, at time.Time) {
	if c, ok := ctx.Value(credentialKey{}).(*Credential); ok && (c.Expires.IsZero() || at.Before(c.Expires)) {
		c.Expires = at
	}
}
