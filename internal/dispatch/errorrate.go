package dispatch

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"portico.dev/internal/filters"
	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routetable"
)

// errorRate counts successful and failed requests to the backend of a choice.
type errorRate struct {
	next     Handler
	rollBack func(route *routetable.Route, rule string, backend int, found routing.Errors) // nil: the rollback stays local to this replica
	route    *routetable.Route
	choice   *routing.Choice
}

// countedResponse notes whether the client accepts the response.
type countedResponse struct {
	filters.Response
	unread bool // a write to the client failed
}

// Write implements http.ResponseWriter.
func (w *countedResponse) Write(p []byte) (int, error) {
	n, err := w.Response.Write(p)
	w.unread = w.unread || err != nil
	return n, err
}

// Serve implements Handler.
func (h *errorRate) Serve(w http.ResponseWriter, r *filters.Request) {
	response := &countedResponse{Response: filters.Response{ResponseWriter: w}}
	complete := false
	defer func() { h.count(r, response, complete) }()
	if r.Header["Upgrade"] != nil { // the backend may hijack the connection
		h.next.Serve(w, r)
		response.Code = filters.ResponseOf(w).Code
	} else {
		h.next.Serve(response, r)
	}
	complete = true
}

// count counts the result of a request. Failures that the client caused are not counted: it disconnected, did not
// read the response, or set a short timeout.
func (h *errorRate) count(r *filters.Request, response *countedResponse, complete bool) {
	rec, failed := r.Record, false
	switch {
	case response.unread, errors.Is(r.Connected.Err(), context.Canceled), rec.Draining != nil && rec.Draining.Err() != nil:
		return
	case rec.Elsewhere:
		failed = true
	case response.Code == http.StatusGatewayTimeout && strings.Contains(r.URL.RawQuery, "timeout"):
		return
	case !complete:
		failed = !rec.IsLongRunning
	default:
		failed = isFailure(response.Code)
	}
	if found, exceeded := h.choice.ErrorRate.Count(time.Now(), failed); exceeded && h.rollBack != nil {
		h.rollBack(h.route, h.choice.Rule, h.choice.Backend, found)
	}
}

func isFailure(code int) bool {
	switch code {
	case 0, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}
