package server

import (
	"net/http"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/audit"
	genericfilters "k8s.io/apiserver/pkg/endpoints/filters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/request"
)

// ForLocal puts into a request's context what the library that serves the local groups looks for there: an audit
// context (without one every patch panics), a warning recorder and latency trackers. Proxied requests do without.
func ForLocal(next http.Handler) http.Handler {
	next = genericfilters.WithWarningRecorder(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := audit.WithAuditContext(r.Context())
		audit.WithAuditID(ctx, types.UID(request.AuditID(ctx)))
		ctx = apirequest.WithLatencyTrackers(ctx)
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
