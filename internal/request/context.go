package request

import (
	"context"
	"time"
)

type auditIDKey struct{}

// WithAuditID records the id that the front door, the audit log and a backend share for one request.
func WithAuditID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, auditIDKey{}, id)
}

// AuditID is the id of the request in hand, empty outside a request.
func AuditID(ctx context.Context) string {
	switch id := ctx.Value(auditIDKey{}).(type) {
	case *string: // from Facts
		return *id
	case string:
		return id
	}
	return ""
}

type credentialKey struct{}

// Credential is what was believed of a request's sender.
type Credential struct {
	// Kind is which kind it was, empty for none.
	Kind string
	// Expires is when it ceases to be good. Zero: it does not, or nobody knows.
	Expires time.Time
}

// WithCredential lets the authenticator say what it believed; what it said is read from the result.
func WithCredential(ctx context.Context) (context.Context, *Credential) {
	c := &Credential{}
	return context.WithValue(ctx, credentialKey{}, c), c
}

// NoteCredential says which kind of credential was believed, to whoever wants to know.
func NoteCredential(ctx context.Context, kind string) {
	if c, ok := ctx.Value(credentialKey{}).(*Credential); ok {
		c.Kind = kind
	}
}

// NoteExpiry says until when a credential is good. Of several that a request shows, the first to expire counts.
func NoteExpiry(ctx context.Context, at time.Time) {
	if c, ok := ctx.Value(credentialKey{}).(*Credential); ok && (c.Expires.IsZero() || at.Before(c.Expires)) {
		c.Expires = at
	}
}
