package accessreview

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

func TestAccessReviewSpec(t *testing.T) {
	u := &user.DefaultInfo{Name: "alice", UID: "u-7", Groups: []string{"dev"}, Extra: map[string][]string{"scope": {"a"}}}
	got := specOf(u, &apirequest.RequestInfo{
		IsResourceRequest: true, Verb: "list", APIGroup: "g", APIVersion: "v1", Namespace: "ns", Resource: "foos", Subresource: "s", Name: "x",
		FieldSelector: "metadata.name=x,spec.a!=b", LabelSelector: "a in (c,b),!d,e",
	})
	want := authorizationv1.SubjectAccessReviewSpec{
		User: "alice", UID: "u-7", Groups: []string{"dev"}, Extra: map[string]authorizationv1.ExtraValue{"scope": {"a"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "list", Group: "g", Version: "v1", Namespace: "ns", Resource: "foos", Subresource: "s", Name: "x",
			FieldSelector: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{
				{Key: "metadata.name", Operator: metav1.FieldSelectorOpIn, Values: []string{"x"}},
				{Key: "spec.a", Operator: metav1.FieldSelectorOpNotIn, Values: []string{"b"}},
			}},
			LabelSelector: &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{
				{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: []string{"b", "c"}},
				{Key: "d", Operator: metav1.LabelSelectorOpDoesNotExist, Values: []string{}},
				{Key: "e", Operator: metav1.LabelSelectorOpExists, Values: []string{}},
			}},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("specOf() = %+v, want %+v", got.ResourceAttributes, want.ResourceAttributes)
	}
	t.Run("selectors that do not parse widen the question", func(t *testing.T) {
		got := specOf(u, &apirequest.RequestInfo{IsResourceRequest: true, FieldSelector: "a=b=c=!", LabelSelector: "!!!"})
		if a := got.ResourceAttributes; a.FieldSelector != nil || a.LabelSelector != nil {
			t.Fatalf("specOf with malformed selectors = %+v, want no selectors", a)
		}
	})
}

// server answers reviews, and counts them. It allows everything to alice.
type server struct {
	count  int
	reason string
}

func (s *server) send(_ context.Context, review, reply *authorizationv1.SubjectAccessReview) error {
	s.count++
	reply.Status.Allowed, reply.Status.Reason = review.Spec.User == "alice", s.reason
	return nil
}

func TestDecisionsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, ttl := range map[string]time.Duration{"alice": rememberAllowed, "bob": rememberDenied} {
			s := &server{}
			r := New(s.send)
			expect := func(want int) {
				t.Helper()
				info := &apirequest.RequestInfo{Verb: "get", Path: "/apis/g/v1"}
				allowed, _, err := r.Authorize(t.Context(), &user.DefaultInfo{Name: name}, info)
				if allowed != (name == "alice") || err != nil || s.count != want {
					t.Errorf("Authorize(%s) = %t, %v after %d reviews, want %t after %d", name, allowed, err, s.count, name == "alice", want)
				}
			}
			expect(1)
			time.Sleep(ttl - time.Nanosecond)
			expect(1)
			time.Sleep(time.Nanosecond)
			expect(2)
		}
	})
}

// TestA68EachPartOfARequestIsReviewed checks that no decision is used for a request that differs in any way.
func TestA68EachPartOfARequestIsReviewed(t *testing.T) {
	s := &server{}
	r := New(s.send)
	resource := apirequest.RequestInfo{IsResourceRequest: true, Verb: "get", APIGroup: "g", APIVersion: "v1", Resource: "foos"}
	with := func(change func(*apirequest.RequestInfo)) *apirequest.RequestInfo {
		other := resource
		change(&other)
		return &other
	}
	alice := func(change func(*user.DefaultInfo)) *user.DefaultInfo {
		u := &user.DefaultInfo{Name: "alice"}
		change(u)
		return u
	}
	for name, tt := range map[string]struct {
		user *user.DefaultInfo
		info *apirequest.RequestInfo
	}{
		"nothing":     {info: &resource},
		"name":        {info: with(func(i *apirequest.RequestInfo) { i.Name = "x" })},
		"namespace":   {info: with(func(i *apirequest.RequestInfo) { i.Namespace = "x" })},
		"verb":        {info: with(func(i *apirequest.RequestInfo) { i.Verb = "list" })},
		"group":       {info: with(func(i *apirequest.RequestInfo) { i.APIGroup = "x" })},
		"version":     {info: with(func(i *apirequest.RequestInfo) { i.APIVersion = "x" })},
		"resource":    {info: with(func(i *apirequest.RequestInfo) { i.Resource = "x" })},
		"subresource": {info: with(func(i *apirequest.RequestInfo) { i.Subresource = "x" })},
		"fields":      {info: with(func(i *apirequest.RequestInfo) { i.FieldSelector = "a=b" })},
		"labels":      {info: with(func(i *apirequest.RequestInfo) { i.LabelSelector = "a=b" })},
		"path":        {info: with(func(i *apirequest.RequestInfo) { i.IsResourceRequest, i.Path = false, "/foos" })},
		"user":        {info: &resource, user: &user.DefaultInfo{Name: "bob"}},
		"UID":         {info: &resource, user: alice(func(u *user.DefaultInfo) { u.UID = "1" })},
		"groups":      {info: &resource, user: alice(func(u *user.DefaultInfo) { u.Groups = []string{"x"} })},
		"extra":       {info: &resource, user: alice(func(u *user.DefaultInfo) { u.Extra = map[string][]string{"x": {"y"}} })},
	} {
		u, before := tt.user, s.count
		if u == nil {
			u = alice(func(*user.DefaultInfo) {})
		}
		for range 2 {
			if _, _, err := r.Authorize(t.Context(), u, tt.info); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.count - before; got != 1 {
			t.Errorf("%d reviews for two requests with another %s, want 1", got, name)
		}
	}
}

// TestA68NamesThatAreNotUTF8AreRefused checks that no decision is made about another name: JSON cannot contain all names.
func TestA68NamesThatAreNotUTF8AreRefused(t *testing.T) {
	s := &server{}
	r := New(s.send)
	for _, c := range []struct {
		user, name string
		want       bool
	}{{"alice", "a\ufffd", true}, {"alice", "a\xff", false}, {"alice\xff", "a", false}} {
		info := &apirequest.RequestInfo{IsResourceRequest: true, Verb: "get", Resource: "foos", Name: c.name}
		allowed, reason, err := r.Authorize(t.Context(), &user.DefaultInfo{Name: c.user}, info)
		if allowed != c.want || err != nil || !c.want && reason == "" {
			t.Errorf("Authorize(%q, %q) = %t, %q, %v, want %t", c.user, c.name, allowed, reason, err, c.want)
		}
	}
	if s.count != 1 {
		t.Errorf("%d reviews, want 1", s.count)
	}
}

func TestReasonsAreBounded(t *testing.T) {
	s := &server{reason: "é" + strings.Repeat("é", maxReason)}
	_, reason, err := New(s.send).Authorize(t.Context(), &user.DefaultInfo{Name: "bob"}, &apirequest.RequestInfo{})
	if err != nil || len(reason) > maxReason || !strings.HasPrefix(s.reason, reason) || reason == "" {
		t.Errorf("Authorize() = %q, %v, want the first %d bytes of the reason", reason, err, maxReason)
	}
}

func TestUnansweredReviewIsAnError(t *testing.T) {
	r := New(func(context.Context, *authorizationv1.SubjectAccessReview, *authorizationv1.SubjectAccessReview) error {
		return fmt.Errorf("no answer")
	})
	if allowed, _, err := r.Authorize(t.Context(), &user.DefaultInfo{Name: "alice"}, &apirequest.RequestInfo{}); allowed || err == nil {
		t.Errorf("Authorize() = %t, %v, want an error", allowed, err)
	}
}
