package server

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"

	"portico.dev/internal/request"
)

// expiring authenticates the same users as byHeader, for a minute.
type expiring struct{ byHeader }

func (a expiring) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	request.NoteExpiry(r.Context(), time.Now().Add(time.Minute))
	return a.byHeader.AuthenticateRequest(r)
}

func TestB10WatchEndsWhenIdentityExpires(t *testing.T) {
	for name, c := range map[string]struct {
		target string
		ends   time.Duration
	}{
		"a watch":     {"/api/v1/pods?watch=1", time.Minute},
		"a plain get": {"/api/v1/pods", 30 * time.Second}, // ended by the request's deadline
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench("alice *")
				b.config.Authenticator, b.config.RequestTimeout = expiring{}, 30*time.Second
				start := time.Now()
				b.handler = func(_ http.ResponseWriter, r *http.Request) {
					<-r.Context().Done()
					if !errors.Is(r.Context().Err(), context.DeadlineExceeded) || time.Since(start) != c.ends {
						t.Errorf("GET %s ended after %s with the error %v, want %s and context.DeadlineExceeded", c.target, time.Since(start), r.Context().Err(), c.ends)
					}
				}
				b.do(t, http.MethodGet, c.target, "Test-User: alice")
			})
		})
	}
}
