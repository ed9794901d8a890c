package request

import "context"

type auditIDKey struct{}

// WithAuditID records the id that the front door, the audit log and a backend share for one request.
func WithAuditID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, auditIDKey{}, id)
}

// AuditID is the id of the request in hand, empty outside a request.
func AuditID(ctx context.Context) string {
	id, _ := ctx.Value(auditIDKey{}).(string)
	return id
}

type credentialKey struct{}

// WithCredential lets the authenticator say which kind of credential it believed; what it said is read from the result.
func WithCredential(ctx context.Context) (context.Context, *string) {
	kind := new(string)
	return context.WithValue(ctx, credentialKey{}, kind), kind
}

// NoteCredential says which kind of credential was believed, to whoever wants to know.
func NoteCredential(ctx context.Context, kind string) {
	if to, ok := ctx.Value(credentialKey{}).(*string); ok {
		*to = kind
	}
}
