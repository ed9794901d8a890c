package coreapi

import (
	"context"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/filters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"portico.dev/internal/request"
	"portico.dev/internal/respond"
)

const (
	// requestTimeout ends in-process requests that are not watches, like the deadline of the outer chain.
	requestTimeout = time.Minute
	// readyTimeout is how long an in-process request waits for the server to serve. Controllers start before it does.
	readyTimeout = 30 * time.Second
)

// ClientConfig makes clients that act as u without leaving the process and without being authorized: controllers of
// the house use it, and it must not be handed to anybody else. Typed clients speak protobuf through it, the dynamic
// and the metadata client JSON. Requests wait for readiness; there is no client-side rate limit.
func (s *Server) ClientConfig(u user.Info) *rest.Config {
	return inProcessConfig(asUser(u, s.Handler(), s.awaitReady))
}

func inProcessConfig(h http.Handler) *rest.Config {
	return &rest.Config{
		Host:      "http://in-process.invalid", // never resolved
		Transport: InProcess(h),
		QPS:       -1,
	}
}

// asUser is the chain of in-process requests: what the package documentation says the handler expects. A request is
// refused with the error of await, which may wait.
func asUser(u user.Info, handler http.Handler, await func(context.Context) error) http.Handler {
	resolver := request.NewResolver()
	handler = filters.WithWarningRecorder(handler)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, err := resolver.Info(r)
		if err != nil {
			respond.Error(w, r, apierrors.NewBadRequest(err.Error()))
			return
		}
		ctx := r.Context()
		if !request.LongRunning(info) {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, requestTimeout)
			defer cancel()
		}
		if err := await(ctx); err != nil {
			respond.Error(w, r, err)
			return
		}
		ctx = audit.WithAuditContext(ctx)
		ctx = apirequest.WithRequestInfo(ctx, info)
		ctx = apirequest.WithUser(ctx, u)
		ctx = apirequest.WithReceivedTimestamp(ctx, time.Now())
		ctx = apirequest.WithLatencyTrackers(ctx)
		w.Header().Set("Cache-Control", "no-cache, private")
		handler.ServeHTTP(w, r.WithContext(ctx))
	})
}

// awaitReady returns early when there is nothing to wait for any more. It names no time to come back: client-go would
// come back ten times, and hold up whoever is stopping.
func (s *Server) awaitReady(ctx context.Context) error {
	gone := apierrors.NewServiceUnavailable("the local API groups are not being served any more")
	if s.stop.Err() != nil {
		return gone
	}
	timer := time.NewTimer(readyTimeout)
	defer timer.Stop()
	select {
	case <-s.ready:
		return nil
	case <-s.stop.Done():
		return gone
	case <-timer.C:
		return apierrors.NewServiceUnavailable("the local API groups did not become ready within " + readyTimeout.String())
	case <-ctx.Done():
		return apierrors.NewTimeoutError(ctx.Err().Error(), 0)
	}
}
