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

func TestHealth(t *testing.T) {
	sick := errors.New("secret address")
	h := NewHealth(zap.NewNop(),
		Check{Name: "goroutines", Live: true, Ask: func(context.Context) error { return nil }},
		Check{Name: "etcd", Ask: func(context.Context) error { return nil }},
		Check{Name: "discovery", Ask: func(context.Context) error { return sick }})
	for target, want := range map[string]struct {
		code int
		body string
	}{
		"/livez":                            {200, "ok"},
		"/livez?verbose":                    {200, "[+]ping ok\n[+]goroutines ok\nlivez check passed\n"},
		"/livez?exclude=etcd":               {200, "ok"},
		"/livez?verbose&exclude=etcd":       {200, "[+]goroutines ok\nwarn: some health checks cannot be excluded: no matches for \"etcd\"\nlivez check passed\n"},
		"/livez/goroutines":                 {200, "ok"},
		"/livez/etcd":                       {404, "Status"},
		"/readyz":                           {500, "[-]discovery failed: reason withheld\n"},
		"/readyz?verbose":                   {500, "readyz check failed\n"},
		"/readyz?exclude=discovery":         {200, "ok"},
		"/readyz?verbose&exclude=discovery": {200, "[+]discovery excluded: ok\n"},
		"/healthz":                          {500, "healthz check failed"},
		"/readyz/etcd":                      {200, "ok"},
		"/readyz/discovery":                 {500, "[-]discovery failed"},
		"/readyz/nothing":                   {404, "Status"},
		"/livez/discovery":                  {404, "Status"},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		if w.Code != want.code || !strings.Contains(w.Body.String(), want.body) {
			t.Errorf("%s: %d %q, want %d %q", target, w.Code, w.Body, want.code, want.body)
		}
		if strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s tells why", target)
		}
	}
	sick = nil
	h.Stopping()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz?verbose", nil))
	if w.Code != 500 || !strings.Contains(w.Body.String(), "[-]shutdown") {
		t.Errorf("while stopping: %d %q", w.Code, w.Body)
	}
	if w = httptest.NewRecorder(); true {
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/livez", nil))
	}
	if w.Code != 200 {
		t.Errorf("livez while stopping: %d", w.Code)
	}
}
