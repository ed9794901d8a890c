package request

import (
	"context"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// Facts is the context of one request with all that the chain finds out about it: one value in place of one context for
// each fact. Who reads it asks for a fact as if it had been put there by this package or by the library. A fact is set by
// the goroutine that serves the request, before it is passed on.
type Facts struct {
	context.Context
	Info       *apirequest.RequestInfo
	User       user.Info
	Received   time.Time
	AuditID    string
	Credential Credential
}

// Value implements context.Context.
func (f *Facts) Value(key any) any {
	switch key {
	case libraryKeys.info:
		if f.Info != nil {
			return f.Info
		}
	case libraryKeys.user:
		if f.User != nil {
			return f.User
		}
	case libraryKeys.received:
		if !f.Received.IsZero() {
			return f.Received
		}
	case auditIDKey{}:
		if f.AuditID != "" {
			return &f.AuditID // a pointer costs no allocation
		}
	case credentialKey{}:
		return &f.Credential
	}
	return f.Context.Value(key)
}

// libraryKeys are the keys of k8s.io/apiserver, which it does not export: it says them when it looks for the facts.
var libraryKeys = func() (keys struct{ info, user, received any }) {
	keys.info = KeyOf(func(ctx context.Context) { apirequest.RequestInfoFrom(ctx) })
	keys.user = KeyOf(func(ctx context.Context) { apirequest.UserFrom(ctx) })
	keys.received = KeyOf(func(ctx context.Context) { apirequest.ReceivedTimestampFrom(ctx) })
	return keys
}()

// KeyOf is the key by which look looks for something in a context.
func KeyOf(look func(context.Context)) any {
	l := &listener{Context: context.Background()}
	look(l)
	return l.key
}

// listener remembers what it was asked for.
type listener struct {
	context.Context
	key any
}

func (l *listener) Value(key any) any {
	l.key = key
	return nil
}
