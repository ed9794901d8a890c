package request

import (
	"context"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

type elsewhere struct{}

func TestContextValuesAreFoundByAPIServer(t *testing.T) {
	parent := context.WithValue(t.Context(), elsewhere{}, "kept")
	f := &Context{Context: parent}
	if _, ok := apirequest.RequestInfoFrom(f); ok {
		t.Error("RequestInfoFrom an empty context = true, want false")
	}
	if _, ok := apirequest.UserFrom(f); ok {
		t.Error("UserFrom an empty context = true, want false")
	}
	if _, ok := apirequest.ReceivedTimestampFrom(f); ok || AuditID(f) != "" {
		t.Errorf("received time of an empty context = %t with the audit ID %q, want false and none", ok, AuditID(f))
	}
	info, who, at := &apirequest.RequestInfo{Verb: "get"}, &user.DefaultInfo{Name: "alice"}, time.Unix(7, 0)
	f.Info, f.User, f.Received, f.AuditID = info, who, at, "id"
	ctx, cancel := context.WithCancel(f)
	defer cancel()
	if got, _ := apirequest.RequestInfoFrom(ctx); got != info {
		t.Errorf("RequestInfoFrom = %v, want %v", got, info)
	}
	if got, _ := apirequest.UserFrom(ctx); got != who {
		t.Errorf("UserFrom = %v, want %v", got, who)
	}
	if got, _ := apirequest.ReceivedTimestampFrom(ctx); got != at || AuditID(ctx) != "id" || ctx.Value(elsewhere{}) != "kept" {
		t.Errorf("received time = %v with the audit ID %q and the outer value %v, want %v, id and kept", got, AuditID(ctx), ctx.Value(elsewhere{}), at)
	}
	NoteCredential(ctx, "token")
	if f.Credential.Kind != "token" {
		t.Errorf("credential = %+v, want the kind token", f.Credential)
	}
	// With impersonation, the inner context has the impersonated user.
	as := apirequest.WithUser(ctx, &user.DefaultInfo{Name: "bob"})
	if got, _ := apirequest.UserFrom(as); got.GetName() != "bob" {
		t.Errorf("UserFrom with impersonation = %v, want bob", got)
	}
}
