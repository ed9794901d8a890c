package extension

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/logging"
	"portico.dev/internal/request"
	"portico.dev/internal/respond"
)

// filter wraps a handler.
type filter func(next http.Handler) http.Handler

// chain wraps a handler in the filters, in the order in which a request meets them.
func (h *Host) chain(handler http.Handler) http.Handler {
	filters := []filter{
		h.identify,
		h.record,
		h.recoverPanics,
		h.canonical,
		h.health,
		h.authenticate,
		h.limit,
		h.authorize,
		h.deadline,
	}
	for i := len(filters) - 1; i >= 0; i-- {
		handler = filters[i](handler)
	}
	return handler
}

// identify sets the request's audit id: the front door's, so that both logs can be joined, or a new one.
func (h *Host) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("Audit-Id")
		if !validAuditID(id) {
			id = uuid.NewString()
		}
		w.Header().Set("Audit-Id", id)
		next.ServeHTTP(w, r.WithContext(request.WithAuditID(r.Context(), id)))
	})
}

// plainID: the id goes into a header and a log line, so it is only taken over when it cannot be mistaken there.
func validAuditID(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	for _, c := range id {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}

// recoverPanics turns a panic of a provider into a 500 and a stack in the log.
func (h *Host) recoverPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler {
				panic(p)
			}
			h.metrics.Panics.Inc()
			h.log.Error("panic while serving a request", append(logging.PanicFields(p), zap.String("path", truncated(r.URL.Path)),
				zap.String("audit-id", request.AuditID(r.Context())))...)
			if rec, ok := w.(*recorder); ok && rec.code != 0 {
				// The answer has begun: only cutting it off tells the client that it is not whole.
				panic(http.ErrAbortHandler)
			}
			respond.Error(w, r, apierrors.NewInternalError(errors.New("the server panicked; its log has the details")))
		}()
		next.ServeHTTP(w, r)
	})
}

// canonical rejects ambiguous URLs, bounds the body, and parses the RequestInfo.
func (h *Host) canonical(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := request.CheckTarget(r.URL.EscapedPath(), r.URL.RawQuery); err != nil {
			h.metrics.Refused.WithLabelValues("target").Inc()
			respond.Error(w, r, apierrors.NewBadRequest(err.Error()))
			return
		}
		info, err := h.resolver.Info(r)
		if err != nil {
			respond.Error(w, r, apierrors.NewBadRequest(err.Error()))
			return
		}
		if !h.longRunning(info) { // the body of a connect request is the provider's
			if r.ContentLength > h.config.MaxBodyBytes {
				respond.Error(w, r, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", h.config.MaxBodyBytes)))
				return
			}
			r.Body = http.MaxBytesReader(w, r.Body, h.config.MaxBodyBytes)
		}
		setInfo(w, info)
		next.ServeHTTP(w, r.WithContext(apirequest.WithRequestInfo(r.Context(), info)))
	})
}

// health serves the health paths before authentication: probes have no credentials.
func (h *Host) health(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.checks.owns(r.URL.Path) {
			h.checks.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// authenticate identifies the caller. The reason of a refusal is only logged: it would help an attacker.
func (h *Host) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := h.config.Authenticator.AuthenticateRequest(r)
		if err != nil || who == nil {
			h.metrics.Refused.WithLabelValues("unauthenticated").Inc()
			h.log.Info("not authenticated", zap.Error(err), zap.String("client", r.RemoteAddr),
				zap.String("audit-id", request.AuditID(r.Context())))
			respond.Error(w, r, apierrors.NewUnauthorized("Unauthorized"))
			return
		}
		setUser(w, who)
		next.ServeHTTP(w, r.WithContext(apirequest.WithUser(r.Context(), who)))
	})
}

// authorize asks the Authorizer whether the caller may do this.
func (h *Host) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		who, _ := apirequest.UserFrom(ctx)
		info, _ := apirequest.RequestInfoFrom(ctx)
		allowed, reason, err := h.config.Authorizer.Authorize(ctx, who, info)
		switch {
		case err != nil:
			h.log.Warn("authorization undecided", zap.Error(err), zap.String("user", who.GetName()),
				zap.String("audit-id", request.AuditID(ctx)))
			respond.Error(w, r, apierrors.NewInternalError(errors.New("the extension server could not ask whether this is allowed")))
		case !allowed:
			respond.Error(w, r, forbidden(who, info, reason))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// forbidden is a 403 that says who refused: both the front door and the extension server ask, and a person who reads
// the message must know whose rules to look at.
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

// deadline bounds every request that is not long-running.
func (h *Host) deadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, _ := apirequest.RequestInfoFrom(r.Context()); h.longRunning(info) {
			next.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), h.config.RequestTimeout)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// apiGroupResource is the group and resource that a request names, empty for paths that name none.
func apiGroupResource(r *http.Request) schema.GroupResource {
	info, ok := apirequest.RequestInfoFrom(r.Context())
	if !ok || !info.IsResourceRequest {
		return schema.GroupResource{Resource: strings.Trim(r.URL.Path, "/")}
	}
	return schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
}

// slots bounds how much is done at once. A full one refuses at once: a queue would only hide the overload.
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

// limit bounds requests in flight. It stands behind authentication because a front door's probe, made as
// system:masters, must get through to an overloaded server: refusing it would take the whole API away.
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
