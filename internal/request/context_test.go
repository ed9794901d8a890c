package request

import (
	"context"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

type elsewhere struct{}

func TestContextValuesAreFoundByTheLibrary(t *testing.T) {
	parent := context.WithValue(t.Context(), elsewhere{}, "kept")
	f := &Context{Context: parent}
	if _, ok := apirequest.RequestInfoFrom(f); ok {
		t.Error("an info that nobody set")
	}
	if _, ok := apirequest.UserFrom(f); ok {
		t.Error("a user that nobody set")
	}
	if _, ok := apirequest.ReceivedTimestampFrom(f); ok || AuditID(f) != "" {
		t.Error("a time or an id that nobody set")
	}
	info, who, at := &apirequest.RequestInfo{Verb: "get"}, &user.DefaultInfo{Name: "alice"}, time.Unix(7, 0)
	f.Info, f.User, f.Received, f.AuditID = info, who, at, "id"
	ctx, cancel := context.WithCancel(f)
	defer cancel()
	if got, _ := apirequest.RequestInfoFrom(ctx); got != info {
		t.Error(got)
	}
	if got, _ := apirequest.UserFrom(ctx); got != who {
		t.Error(got)
	}
	if got, _ := apirequest.ReceivedTimestampFrom(ctx); got != at || AuditID(ctx) != "id" || ctx.Value(elsewhere{}) != "kept" {
		t.Error(got, AuditID(ctx))
	}
	NoteCredential(ctx, "token")
	if f.Credential.Kind != "token" {
		t.Error(f.Credential)
	}
	// Who acts as somebody else is that somebody further in.
	as := apirequest.WithUser(ctx, &user.DefaultInfo{Name: "bob"})
	if got, _ := apirequest.UserFrom(as); got.GetName() != "bob" {
		t.Error(got)
	}
}
