package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"portico.dev/internal/metrics"
)

// failing is an authorizer that always returns an error.
type failing struct{}

func (failing) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, "", errors.New("no answer")
}

// panicking is an authenticator that panics.
type panicking struct{}

func (panicking) AuthenticateRequest(*http.Request) (*authenticator.Response, bool, error) {
	panic("fault")
}

// A client without credentials sends requests without end. Every kind of log line that it causes is limited.
func TestA50LogLinesBeforeAuthenticationAreLimited(t *testing.T) {
	const requests, most = 2000, 1000
	anonymous := &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	for name, c := range map[string]struct {
		handler func(log *zap.Logger) http.Handler
		message string
	}{
		"a request under the name of replicas": {func(log *zap.Logger) http.Handler {
			return NewPeerChain(newBenchWith(log).config, oneReplica{}, metrics.NewPeers(prometheus.NewRegistry()), http.NotFoundHandler())
		}, "rejected a peer request"},
		"a credential that is invalid": {func(log *zap.Logger) http.Handler {
			b := newBenchWith(log)
			return withHeader(b.chain(t), "Test-User", "bad")
		}, "authentication failed"},
		"the access log, without a user": {func(log *zap.Logger) http.Handler { return newBenchWith(log).chain(t) }, "request"},
		"the access log, anonymous": {func(log *zap.Logger) http.Handler {
			return withHeader(newBenchWith(log).chain(t), "Test-User", anonymous.Name)
		}, "request"},
		"an authorizer that fails": {func(log *zap.Logger) http.Handler {
			b := newBenchWith(log)
			b.config.Authorizer = failing{}
			return withHeader(b.chain(t), "Test-User", anonymous.Name)
		}, "authorization failed"},
		"a health check that fails": {func(log *zap.Logger) http.Handler {
			return NewHealth(log, Check{Name: "down", Live: true, Ask: func(context.Context) error { return errors.New("down") }})
		}, "health check failed"},
		"a panic": {func(log *zap.Logger) http.Handler {
			b := newBenchWith(log)
			b.config.Authenticator = panicking{}
			return b.chain(t)
		}, "panic while serving a request"},
	} {
		t.Run(name, func(t *testing.T) {
			core, lines := observer.New(zap.InfoLevel)
			handler := c.handler(zap.New(core))
			for range requests {
				handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/livez", nil))
			}
			if got := lines.FilterMessage(c.message).Len(); got == 0 || got > most {
				t.Errorf("%d requests wrote %d lines %q, want 1 to %d", requests, got, c.message, most)
			}
		})
	}
}

// Every request of an authenticated user is logged.
func TestAccessLogContainsEveryAuthenticatedRequest(t *testing.T) {
	core, lines := observer.New(zap.InfoLevel)
	handler := withHeader(newBenchWith(zap.New(core)).chain(t), "Test-User", "alice")
	for range 2000 {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/livez", nil))
	}
	if got := lines.FilterMessage("request").Len(); got != 2000 {
		t.Errorf("2000 requests wrote %d lines, want 2000", got)
	}
}

func newBenchWith(log *zap.Logger) *bench {
	b := newBench("alice *")
	b.config.Logger, b.config.AccessLog = log, log
	return b
}

func withHeader(next http.Handler, name, value string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set(name, value)
		next.ServeHTTP(w, r)
	})
}
