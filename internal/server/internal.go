package server

import (
	"net/http"

	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/metrics"
	"portico.dev/internal/request"
)

// NewInternalChain lets our own controllers call next, local groups and backends alike, without a socket: the user is
// given, everything that guards against strangers is left out, and what a handler needs to know of a request is there.
func NewInternalChain(u user.Info, m *metrics.Requests, log *zap.Logger, next http.Handler) http.Handler {
	resolver := request.NewResolver()
	asUser := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(apirequest.WithUser(r.Context(), u)))
		})
	}
	h := asUser(next)
	h = deadlineFilter(0)(h)
	h = auditInitFilter()(h)
	h = requestInfoFilter(resolver)(h)
	return recoverFilter(log, m, nil)(h)
}
