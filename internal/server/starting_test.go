package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"
)

// Before the server accepts requests, clients receive a 503 that states so, and probes see that the process is alive.
func TestStartingServerReturns503(t *testing.T) {
	h := startingHandler(NewHealth(zap.NewNop(), Check{Name: "etcd", Ask: func(context.Context) error { return errors.New("not there yet") }}))
	for _, c := range []struct {
		method, target string
		code           int
		body           string
	}{
		{http.MethodGet, "/livez", http.StatusOK, "ok"},
		{http.MethodHead, "/livez", http.StatusOK, ""},
		{http.MethodGet, "/readyz", http.StatusInternalServerError, "[-]etcd failed"},
		{http.MethodGet, "/readyz/etcd", http.StatusServiceUnavailable, "is starting"},
		{http.MethodGet, "/healthz", http.StatusInternalServerError, "[-]etcd failed"},
		{http.MethodPost, "/livez", http.StatusServiceUnavailable, "is starting"},
		{http.MethodGet, "/api/v1/pods", http.StatusServiceUnavailable, "the front door is starting; /readyz?verbose says what it waits for"},
		{http.MethodGet, "/", http.StatusServiceUnavailable, `"kind":"Status"`},
		{http.MethodGet, "/livezz", http.StatusServiceUnavailable, "is starting"},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(c.method, c.target, nil))
		if w.Code != c.code || c.method != http.MethodHead && !strings.Contains(w.Body.String(), c.body) {
			t.Errorf("%s %s while starting = %d %s, want %d %s", c.method, c.target, w.Code, w.Body, c.code, c.body)
		}
		if again := w.Header().Get("Retry-After"); c.code == http.StatusServiceUnavailable && again != "1" {
			t.Errorf("Retry-After of %s %s while starting = %q, want 1", c.method, c.target, again)
		}
	}
}
