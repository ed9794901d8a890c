package request

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// Context is the context of a request. It holds the facts that the handler chain determines, and the deadline. It
// replaces a chain of one context per fact; the facts are available under the keys of this package and of
// k8s.io/apiserver. The goroutine that serves the request sets the facts before it passes the context on. Derived
// contexts may outlive the request, so a Context is never reused for another request.
//
// The deadline costs nothing until it is waited for. A proxied request has a separate timer, because the proxy
// ignores the deadline after the response headers. The proxy only calls Deadline.
type Context struct {
	context.Context // ends when the client disconnects

	Info       *apirequest.RequestInfo
	User       user.Info
	Received   time.Time
	AuditID    string
	RemoteAddr string
	Credential Credential

	deadline time.Time // zero without a deadline
	finished atomic.Bool
	arm      sync.Once
	armed    atomic.Pointer[deadlineContext]
}

// deadlineContext is the context with the deadline, created on first use.
type deadlineContext struct {
	context.Context
	cancel context.CancelFunc
}

// SetDeadline sets the deadline of the request. It must be called before the context is passed on.
func (c *Context) SetDeadline(at time.Time) { c.deadline = at }

// HasDeadline reports whether SetDeadline was called.
func (c *Context) HasDeadline() bool { return !c.deadline.IsZero() }

// Finish marks the end of the request.
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

// AfterFunc implements the optional method that package context calls. Without it, each derived context would need a
// goroutine.
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
			return &c.AuditID // a pointer avoids an allocation
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
		return t.Value(key) // includes the values of c.Context and internal keys of package context
	}
	return c.Context.Value(key)
}

type clientKey struct{}

// ClientContext returns the context that ends when the client of ctx's request disconnects, that is, ctx without the
// request's deadline. It returns ctx if there is no such context.
func ClientContext(ctx context.Context) context.Context {
	if client, ok := ctx.Value(clientKey{}).(context.Context); ok {
		return client
	}
	return ctx
}

// libraryKeys are the context keys of k8s.io/apiserver, which are not exported. A separate context per fact would
// cost every request an allocation each.
var libraryKeys = func() (keys struct{ info, user, received any }) {
	keys.info = KeyOf(func(ctx context.Context) { apirequest.RequestInfoFrom(ctx) })
	keys.user = KeyOf(func(ctx context.Context) { apirequest.UserFrom(ctx) })
	keys.received = KeyOf(func(ctx context.Context) { apirequest.ReceivedTimestampFrom(ctx) })
	return keys
}()

// KeyOf returns the key under which get looks up a value in a context.
func KeyOf(get func(context.Context)) any {
	r := &keyRecorder{Context: context.Background()}
	get(r)
	return r.key
}

// keyRecorder is a context that records the key of a lookup.
type keyRecorder struct {
	context.Context
	key any
}

func (r *keyRecorder) Value(key any) any {
	r.key = key
	return nil
}

type auditIDKey struct{}

// WithAuditID adds the audit id of a request, which is shared by the server, the audit log and the backend.
func WithAuditID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, auditIDKey{}, id)
}

// AuditID returns the audit id of ctx's request, or "" outside a request.
func AuditID(ctx context.Context) string {
	switch id := ctx.Value(auditIDKey{}).(type) {
	case *string: // from a Context
		return *id
	case string:
		return id
	}
	return ""
}

type credentialKey struct{}

// Credential describes how a request was authenticated.
type Credential struct {
	// Kind is the kind of credential, empty without a credential.
	Kind string
	// Expires is the end of validity. Zero if it is unlimited or unknown.
	Expires time.Time
}

// NoteCredential records the kind of the accepted credential.
func NoteCredential(ctx context.Context, kind string) {
	if c, ok := ctx.Value(credentialKey{}).(*Credential); ok {
		c.Kind = kind
	}
}

// CredentialKind returns the kind of the accepted credential, or "" before authentication and outside a request.
func CredentialKind(ctx context.Context) string {
	if c, ok := ctx.Value(credentialKey{}).(*Credential); ok {
		return c.Kind
	}
	return ""
}

// NoteExpiry records the expiry of a credential. If a request has several, the earliest expiry is kept.
func NoteExpiry(ctx context.Context, at time.Time) {
	if c, ok := ctx.Value(credentialKey{}).(*Credential); ok && (c.Expires.IsZero() || at.Before(c.Expires)) {
		c.Expires = at
	}
}
