package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

var noResource schema.GroupResource

// errNoUser comes with attributes that say everything else.
var errNoUser = errors.New("no user; the chain is out of order")

// attributesOf is the question that the authorizer is asked, from the facts that the chain has put into ctx.
func attributesOf(ctx context.Context) (*authorizer.AttributesRecord, error) {
	a := &authorizer.AttributesRecord{}
	return a, fillAttributes(ctx, a)
}

func fillAttributes(ctx context.Context, a *authorizer.AttributesRecord) error {
	info, ok := requestInfo(ctx)
	if !ok {
		return errors.New("no request info; the chain is out of order")
	}
	user, known := requestUser(ctx)
	*a = authorizer.AttributesRecord{
		User:            user,
		Verb:            info.Verb,
		Path:            info.Path,
		ResourceRequest: info.IsResourceRequest,
		APIGroup:        info.APIGroup,
		APIVersion:      info.APIVersion,
		Resource:        info.Resource,
		Subresource:     info.Subresource,
		Namespace:       info.Namespace,
		Name:            info.Name,
	}
	// KEP-4601: authorizers may look at selectors; one that does not parse is passed on as the reason why it is unknown.
	if info.FieldSelector != "" {
		if s, err := fields.ParseSelector(info.FieldSelector); err != nil {
			a.FieldSelectorParsingErr = err
		} else {
			a.FieldSelectorRequirements = s.Requirements()
		}
	}
	if info.LabelSelector != "" {
		if s, err := labels.Parse(info.LabelSelector); err != nil {
			a.LabelSelectorParsingErr = err
		} else {
			a.LabelSelectorRequirements, _ = s.Requirements()
		}
	}
	if !known {
		return errNoUser
	}
	return nil
}

// askedOf is attributesOf, once for a request.
func attributesFor(ctx context.Context) (*authorizer.AttributesRecord, error) {
	s, ok := requestContextFrom(ctx)
	switch {
	case !ok || s.record.impersonated != nil:
		return attributesOf(ctx)
	case s.attributes == nil:
		if err := fillAttributes(ctx, &s.attributesBuffer); err != nil {
			return nil, err
		}
		s.attributes = &s.attributesBuffer
	}
	return s.attributes, nil
}

// forbidden is the 403 in the words that kube-apiserver's users know.
func forbidden(a authorizer.Attributes, reason string) *apierrors.StatusError {
	message := describe(a)
	if reason != "" {
		message += ": " + reason
	}
	status := &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure,
		Code:   http.StatusForbidden,
		Reason: metav1.StatusReasonForbidden,
		Details: &metav1.StatusDetails{
			Group: a.GetAPIGroup(),
			Kind:  a.GetResource(),
			Name:  a.GetName(),
		},
	}}
	if !a.IsResourceRequest() {
		status.ErrStatus.Message = "forbidden: " + message
		return status
	}
	subject := a.GetResource()
	if g := a.GetAPIGroup(); g != "" {
		subject += "." + g
	}
	if n := a.GetName(); n != "" {
		subject += fmt.Sprintf(" %q", n)
	}
	status.ErrStatus.Message = subject + " is forbidden: " + message
	return status
}

func describe(a authorizer.Attributes) string {
	name := ""
	if u := a.GetUser(); u != nil {
		name = u.GetName()
	}
	if !a.IsResourceRequest() {
		return fmt.Sprintf("User %q cannot %s path %q", name, a.GetVerb(), a.GetPath())
	}
	resource := a.GetResource()
	if s := a.GetSubresource(); s != "" {
		resource += "/" + s
	}
	where := "at the cluster scope"
	if ns := a.GetNamespace(); ns != "" {
		where = fmt.Sprintf("in the namespace %q", ns)
	}
	return fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", name, a.GetVerb(), resource, a.GetAPIGroup(), where)
}

func retryAfter(seconds int32) *metav1.StatusDetails {
	return &metav1.StatusDetails{RetryAfterSeconds: seconds}
}

// isAPIPath is whether a path is served by group-version, and so depends on routes and rules being known.
func isAPIPath(path string) bool {
	rest, ok := strings.CutPrefix(path, "/api")
	if !ok {
		return false
	}
	rest = strings.TrimPrefix(rest, "s")
	return rest == "" || rest[0] == '/'
}
