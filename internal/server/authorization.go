package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"portico.dev/internal/filters"
	"portico.dev/internal/logging"
	"portico.dev/internal/respond"
)

var noResource schema.GroupResource

// errNoUser accompanies attributes that are complete except for the user.
var errNoUser = errors.New("no user; the chain is out of order")

// authorizationFilter authorizes the request and refuses it with kube-apiserver's messages.
//
// A WebSocket begins with a GET, so a right to read would be a right to run commands (attack row A29). If strict is
// true, an upgrade also requires the right to create. Otherwise an upgrade requires the same rights as with
// kube-apiserver.
func authorizationFilter(a authorizer.UnconditionalAuthorizer, strict bool, log *zap.Logger) func(http.Handler) http.Handler {
	log = logging.Limited(log)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := r.Context()
			attributes, err := attributesFor(ctx)
			if err != nil {
				respond.Error(w, r, apierrors.NewInternalError(err))
				return
			}
			if err := Authorize(r, a, strict, attributes, log); err != nil {
				w.Header().Set("X-Content-Type-Options", "nosniff")
				respond.Error(w, r, err)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// Authorize returns nil if a allows a request, or the response. It records the decision. strict is like ChainConfig.UpgradesNeedCreate.
func Authorize(r *http.Request, a authorizer.UnconditionalAuthorizer, strict bool, attributes *authorizer.AttributesRecord, log *zap.Logger) error {
	ctx := r.Context()
	decision, reason, err := a.Authorize(ctx, attributes)
	if decision == authorizer.DecisionAllow && strict && attributes.Verb == "get" && upgrades(r) {
		again := *attributes
		again.Verb = "create"
		attributes = &again
		decision, reason, err = a.Authorize(ctx, attributes)
	}
	rec := recordFrom(ctx)
	rec.Reason = reason
	if decision == authorizer.DecisionAllow {
		rec.Decision = "allow"
		return nil
	}
	rec.Decision = "forbid"
	if err != nil {
		// No authorizer has decided. Clients do not retry a 403, but may retry this error, as with upstream.
		log.Warn("authorization failed", zap.String("user", filters.Bounded(attributes.User.GetName())), zap.String("path", filters.Bounded(r.URL.Path)), zap.Error(err))
		return apierrors.NewInternalError(err)
	}
	return Forbidden(attributes, reason)
}

// AttributesOf returns the authorizer's attributes from the facts that the chain has stored in ctx.
func AttributesOf(ctx context.Context) (*authorizer.AttributesRecord, error) {
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
	// KEP-4601: authorizers may use selectors. For a selector that does not parse, they receive the error.
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

// attributesFor returns the result of AttributesOf. Without impersonation, it is computed once per request.
func attributesFor(ctx context.Context) (*authorizer.AttributesRecord, error) {
	s, ok := requestContextFrom(ctx)
	switch {
	case !ok || s.record.Impersonated != nil:
		return AttributesOf(ctx)
	case s.attributes == nil:
		if err := fillAttributes(ctx, &s.attributesBuffer); err != nil {
			return nil, err
		}
		s.attributes = &s.attributesBuffer
	}
	return s.attributes, nil
}

// Forbidden returns the 403 with kube-apiserver's message.
func Forbidden(a authorizer.Attributes, reason string) *apierrors.StatusError {
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

// isAPIPath reports whether a path is served by group-version, and so requires that routes and rules are known.
func isAPIPath(path string) bool {
	rest, ok := strings.CutPrefix(path, "/api")
	if !ok {
		return false
	}
	rest = strings.TrimPrefix(rest, "s")
	return rest == "" || rest[0] == '/'
}
