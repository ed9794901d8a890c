package coreapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"go.uber.org/zap"

	"portico.dev/internal/respond"
	"portico.dev/internal/store"
)

const (
	// cacheTimeout is how long the watch caches may take to fill before the start is called a failure.
	cacheTimeout = time.Minute
	// drainTimeout is how long requests in flight may take to notice that the server stops.
	drainTimeout = 5 * time.Second
)

// Config is what the local groups stand on.
type Config struct {
	// Store must be ready before Run. Required.
	Store *store.Store
	// Authorizer answers SubjectAccessReviews, and the questions that storage asks on its own account: whether an
	// update that creates may create, whether a role may be escalated or bound. Required.
	Authorizer authorizer.Authorizer
	// RuleResolver answers SelfSubjectRulesReviews and what a user may grant. Required.
	RuleResolver authorizer.RuleResolver
	// Aggregate says what aggregated ClusterRoles give, for whoever wants to bind one. Nil: only those who may everything
	// can bind them.
	Aggregate AggregateFunc
	// TokenAuthenticator answers TokenReviews. Nil: every token is answered unauthenticated.
	TokenAuthenticator authenticator.Token
	// TokenIssuer signs the tokens of serviceaccounts/token. Nil: the subresource is not served.
	TokenIssuer TokenIssuer
	// Logger may be nil.
	Logger *zap.Logger
}

// Server serves the local groups.
type Server struct {
	cfg   Config
	log   *zap.Logger
	codec *codecs

	ready     chan struct{} // closed once, when serving is first set
	discovery Discovery     // written before ready is closed

	mu       sync.RWMutex   // guards serving, and the step from it to inFlight
	serving  http.Handler   // nil before Ready and after the end
	inFlight sync.WaitGroup // requests inside serving
	stop     context.Context
	halt     context.CancelFunc // ends every request in flight; called when Run ends
}

// New prepares codecs and nothing that runs.
func New(cfg Config) (*Server, error) {
	switch {
	case cfg.Store == nil:
		return nil, errors.New("local groups: no store")
	case cfg.Authorizer == nil || cfg.RuleResolver == nil:
		return nil, errors.New("local groups: no authorizer or no rule resolver")
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	c, err := newCodecs()
	if err != nil {
		return nil, fmt.Errorf("local groups: %w", err)
	}
	s := &Server{cfg: cfg, log: cfg.Logger, codec: c, ready: make(chan struct{})}
	s.stop, s.halt = context.WithCancel(context.Background())
	return s, nil
}

// Ready is closed when every resource is served from a full cache.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run builds the storages over a store that is ready, serves until ctx ends, and returns when no request is in flight
// and every cache has stopped. It can be called once.
func (s *Server) Run(ctx context.Context) error {
	defer s.halt()
	client := s.cfg.Store.Client()
	if client == nil {
		return fmt.Errorf("local groups: %w", store.ErrNotReady)
	}
	started := time.Now()
	shelf := newShelf(client, s.cfg.Store.Prefix(), s.codec)
	defer shelf.close()
	api, err := install(s.cfg, s.codec, shelf)
	if err != nil {
		return fmt.Errorf("local groups: %w", err)
	}
	if err := shelf.awaitCaches(ctx, cacheTimeout); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("local groups: %w", err)
	}

	s.discovery = api.discovery
	s.mu.Lock()
	s.serving = api.handler
	s.mu.Unlock()
	close(s.ready)
	s.log.Info("local groups are ready", zap.Duration("took", time.Since(started)))
	<-ctx.Done()
	s.drain()
	return nil
}

// drain turns new requests away, ends those in flight, and waits for them within drainTimeout.
func (s *Server) drain() {
	s.mu.Lock()
	s.serving = nil
	s.mu.Unlock()
	s.halt()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.inFlight.Wait()
	}()
	timer := time.NewTimer(drainTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		s.log.Warn("requests are still in flight; their storage is closed under them", zap.Duration("waited", drainTimeout))
	}
}

// Handler serves the local groups to requests that the chain has prepared: see the package documentation.
// Before Ready and after the end it answers 503.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	handler, done := s.enter()
	if handler == nil {
		respond.Error(w, r, notReady())
		return
	}
	defer done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.stop, cancel)()
	r = r.WithContext(ctx)
	handler.ServeHTTP(forLibrary(w, r), r)
}

// enter counts a request in, so that drain sees it; the handler is nil when there is nothing to serve it.
func (s *Server) enter() (http.Handler, func()) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.serving == nil {
		return nil, nil
	}
	s.inFlight.Add(1)
	return s.serving, s.inFlight.Done
}

func notReady() error {
	err := apierrors.NewServiceUnavailable("the local API groups are not being served: the server is starting or stopping")
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// GroupVersions are the group-versions served here, core first, then as clients should prefer them.
func (s *Server) GroupVersions() []schema.GroupVersion {
	var served []schema.GroupVersion
	for _, g := range groups() {
		served = append(served, g.version)
	}
	return served
}
