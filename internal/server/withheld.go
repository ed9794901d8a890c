package server

import (
	"net/http"

	"portico.dev/internal/filters"
	"portico.dev/internal/request"
)

// A read of a local group that is under way when this replica alone loses etcd ends with 503 after a while. Nothing of that response
// has been sent yet, and a read may be repeated: so the response is withheld, and another replica is asked.

// withholdLoss withholds the response to a read if it is 503 and other replicas have etcd. It returns nil for a request that is not to be
// repeated.
func withholdLoss(r *filters.Request, withEtcd func() []string) *response {
	c, ok := requestContextFrom(r.Context())
	if !ok || r.Method != http.MethodGet || request.LongRunning(r.Info) || r.Header["Upgrade"] != nil {
		return nil
	}
	c.response.withhold = withEtcd
	return &c.response
}

// withholds reports whether a response that begins with a code is withheld.
func (w *response) withholds(code int) bool {
	if w.withhold != nil && code == http.StatusServiceUnavailable && !w.Started() && len(w.withhold()) > 0 {
		w.withheld = true
	}
	return w.withheld
}

// release ends the withholding, and reports whether there was a response that was withheld. Another one may then be written.
func (w *response) release() bool {
	if w == nil {
		return false
	}
	withheld := w.withheld
	w.withhold, w.withheld = nil, false
	if withheld {
		for _, name := range [...]string{"Content-Encoding", "Content-Length", "Content-Type", "Retry-After"} {
			w.Header().Del(name)
		}
	}
	return withheld
}

// WriteHeader implements http.ResponseWriter.
func (w *response) WriteHeader(code int) {
	if !w.withholds(code) {
		w.Response.WriteHeader(code)
	}
}
