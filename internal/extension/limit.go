package extension

import (
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/respond"
)

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
		in, lasts := h.requests, h.lasting(info)
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
