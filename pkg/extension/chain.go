package extension

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/auth/authn"
	"portico.dev/internal/filters"
	"portico.dev/internal/request"
	"portico.dev/internal/respond"
)

// chain wraps handler in the filters, in the order in which they process a request.
func (h *Host) chain(handler http.Handler) http.Handler {
	return filters.Chain(handler, []filters.Filter{
		{Name: "record", Wrap: h.record},
		{Name: "auditID", Wrap: filters.AuditID(newAuditID)},
		{Name: "recover", Wrap: filters.Recover(h.log, h.metrics)},
		{Name: "canonicalPath", Wrap: h.canonicalPath},
		{Name: "requestInfo", Wrap: filters.RequestInfo(h.resolver)},
		{Name: "bodyLimit", Wrap: h.bodyLimit},
		{Name: "health", Wrap: h.health},
		{Name: "authentication", Wrap: filters.Authentication(h.authenticate, h.unauthenticated, h.log)},
		{Name: "frontProxyAuditID", Wrap: h.frontProxyAuditID},
		{Name: "concurrency", Wrap: h.limit},
		{Name: "authorization", Wrap: h.authorize},
		{Name: "deadline", Wrap: filters.Deadline(h.isLongRunning, h.requestTimeout)},
	})
}

// newAuditID ignores the client's Audit-ID, because the client is not authenticated yet.
func newAuditID(string) string { return "" }

// frontProxyAuditID adopts the Audit-ID header of a front door, so that the logs and audit events of both servers share one
// ID. The header of any other client is ignored, because it could make the request look like a different one. Requests that
// are rejected by authentication, or before it, keep the ID that the host generated.
func (h *Host) frontProxyAuditID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if values := r.Header["Audit-Id"]; len(values) > 0 && request.CredentialKind(r.Context()) == authn.KindFrontProxy {
			if id := filters.CallersAuditID(values[0]); id != "" {
				filters.SetAuditID(w, r, id)
			}
		}
		next.ServeHTTP(w, r)
	})
}

// NoteFrontProxy records that the request of ctx comes from a trusted front proxy, which vouches for its user. A custom
// Authenticator calls it in AuthenticateRequest, with the context of the request. The host then adopts the Audit-ID of the
// front proxy instead of a generated one. The authenticator of a Server does this already.
func NoteFrontProxy(ctx context.Context) { request.NoteCredential(ctx, authn.KindFrontProxy) }

// canonicalPath rejects ambiguous URLs with 400.
func (h *Host) canonicalPath(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, err := request.Canonicalize(r, request.RawPath(r.URL), r.URL.RawQuery)
		if err != nil {
			h.metrics.Refused.WithLabelValues("target").Inc()
			respond.Error(w, r, apierrors.NewBadRequest(err.Error()))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bodyLimit limits the size of the body. The body of a connect request belongs to the provider and is not limited.
func (h *Host) bodyLimit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.isLongRunning(r) {
			if r.ContentLength > h.config.MaxBodyBytes {
				respond.Error(w, r, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", h.config.MaxBodyBytes)))
				return
			}
			r.Body = http.MaxBytesReader(w, r.Body, h.config.MaxBodyBytes)
		}
		next.ServeHTTP(w, r)
	})
}

// health serves the health endpoints before authentication, because probes have no credentials.
func (h *Host) health(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.checks.owns(r.URL.Path) {
			h.checks.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (h *Host) authenticate(r *http.Request) (user.Info, error) {
	u, err := h.config.Authenticator.AuthenticateRequest(r)
	if u == nil && err == nil {
		err = errors.New("no credential was accepted")
	}
	return u, err
}

func (h *Host) unauthenticated(http.ResponseWriter, *http.Request) {
	h.metrics.Refused.WithLabelValues("unauthenticated").Inc()
}

// authorize rejects requests that the Authorizer does not allow.
func (h *Host) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		who, _ := apirequest.UserFrom(ctx)
		info, _ := apirequest.RequestInfoFrom(ctx)
		allowed, reason, err := h.config.Authorizer.Authorize(ctx, who, info)
		switch {
		case err != nil:
			h.limited.Warn("authorization undecided", zap.Error(err), zap.String("user", who.GetName()),
				zap.String("audit-id", request.AuditID(ctx)))
			respond.Error(w, r, apierrors.NewInternalError(errors.New("the extension server could not ask whether this is allowed")))
		case !allowed:
			respond.Error(w, r, forbidden(who, info, reason))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// forbidden returns a 403 that names the extension server. Both the front door and the extension server authorize a request,
// and the user must know which server's rules apply.
func forbidden(who user.Info, info *apirequest.RequestInfo, reason string) error {
	text := fmt.Sprintf("User %q cannot %s path %q", who.GetName(), info.Verb, info.Path)
	if info.IsResourceRequest {
		resource := info.Resource
		if info.Subresource != "" {
			resource += "/" + info.Subresource
		}
		where := "at the cluster scope"
		if info.Namespace != "" {
			where = fmt.Sprintf("in the namespace %q", info.Namespace)
		}
		text = fmt.Sprintf("User %q cannot %s resource %q in API group %q %s",
			who.GetName(), info.Verb, resource, info.APIGroup, where)
	}
	text += " (refused by the extension server's own check)"
	if reason != "" {
		text += ": " + reason
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Name, errors.New(text))
}

func (h *Host) isLongRunning(r *http.Request) bool {
	info, _ := apirequest.RequestInfoFrom(r.Context())
	return h.longRunning(info)
}

func (h *Host) requestTimeout(*http.Request) (time.Duration, error) {
	return h.config.RequestTimeout, nil
}

// apiGroupResource returns the group and resource of a request. For a non-resource request, the resource is the path.
func apiGroupResource(r *http.Request) schema.GroupResource {
	info, ok := apirequest.RequestInfoFrom(r.Context())
	if !ok || !info.IsResourceRequest {
		return schema.GroupResource{Resource: strings.Trim(r.URL.Path, "/")}
	}
	return schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
}

// slots limits concurrency. A request beyond the limit is rejected at once, because a queue would only hide the overload.
type slots chan struct{}

func (s slots) take() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s slots) give() { <-s }

// limit limits the number of concurrent requests. It runs after authentication, because the probes of a front door, which are
// made as system:masters, must pass even on an overloaded server: a failed probe would make the whole API unavailable.
func (h *Host) limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := apirequest.UserFrom(r.Context())
		if slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
			next.ServeHTTP(w, r)
			return
		}
		info, _ := apirequest.RequestInfoFrom(r.Context())
		in, lasts := h.requests, h.longRunning(info)
		if lasts {
			in = h.watches
		}
		if !in.take() {
			h.metrics.Refused.WithLabelValues("concurrency").Inc()
			respond.Error(w, r, apierrors.NewTooManyRequests(
				fmt.Sprintf("more than %d requests at once, please try again later", cap(in)), 1))
			return
		}
		defer in.give()
		running := h.metrics.InFlight.WithLabelValues(requestKind(info))
		if lasts {
			running = h.metrics.LongRunning.WithLabelValues(h.labels(info)...)
		}
		running.Inc()
		defer running.Dec()
		next.ServeHTTP(w, r)
	})
}

func requestKind(info *apirequest.RequestInfo) string {
	switch info.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return "mutating"
	}
	return "readOnly"
}
