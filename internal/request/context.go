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
