package server

import (
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/metrics"
	"portico.dev/internal/request"
	"portico.dev/internal/respond"
)

// flowControlFilter bounds the requests that are served at once, reads and writes apart, so that many readers cannot
// keep a writer out. Long-running requests are not counted, those for a backend until it is known that they are (the
// places of that backend bound them), and administrators are let in so that they can mend things.
func flowControlFilter(readers, writers int, m *metrics.Requests) func(http.Handler) http.Handler {
	if readers == 0 {
		readers = 400
	}
	if writers == 0 {
		writers = 200
	}
	return func(next http.Handler) http.Handler {
		reading, writing := seats(readers), seats(writers)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			info, _ := apirequest.RequestInfoFrom(r.Context())
			room := reading
			if mutating(info) {
				room = writing
			}
			if room == nil || request.LongRunning(info) || exempt(r) {
				next.ServeHTTP(w, r)
				return
			}
			select {
			case room <- struct{}{}:
				rec := recordFrom(r.Context())
				rec.leave = func() { <-room }
				defer rec.giveUpSeat()
				next.ServeHTTP(w, r)
			default:
				m.Refused.WithLabelValues("too-many-requests").Inc()
				respond.Error(w, r, apierrors.NewTooManyRequests("too many requests, please try again later", 1))
			}
		})
	}
}

func seats(n int) chan struct{} {
	if n < 0 {
		return nil
	}
	return make(chan struct{}, n)
}

func exempt(r *http.Request) bool {
	u, ok := apirequest.UserFrom(r.Context())
	return ok && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)
}
