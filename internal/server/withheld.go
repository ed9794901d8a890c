package server

import (
	"net/http"

	"portico.dev/internal/filters"
)

var _ filters.Client = (*response)(nil)

// Is implements filters.Client.
func (w *response) Is(other http.ResponseWriter) bool {
	switch other := other.(type) {
	case *response:
		return other == w
	case hijackable:
		return other.response == w
	}
	return false
}

// Withhold implements filters.Client.
func (w *response) Withhold(lost func() bool) { w.withhold = lost }

// withholds reports whether a response with the given status code is withheld.
func (w *response) withholds(code int) bool {
	if w.withhold != nil && code == http.StatusServiceUnavailable && !w.Started() && w.withhold() {
		w.withheld = true
	}
	return w.withheld
}

// Release implements filters.Client.
func (w *response) Release() bool {
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
