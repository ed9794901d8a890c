package coreapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kube-openapi/pkg/common"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"portico.dev/internal/coreapi/admission"
	"portico.dev/internal/coreapi/allocation"
	"portico.dev/internal/coreapi/crds"
	"portico.dev/internal/coreapi/kinds"
	"portico.dev/internal/coreapi/openapidocs"
	"portico.dev/internal/coreapi/registry"
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
	Aggregate registry.AggregateFunc
	// TokenAuthenticator answers TokenReviews. Nil: every token is answered unauthenticated.
	TokenAuthenticator authenticator.Token
	// TokenIssuer signs the tokens of serviceaccounts/token. Nil: the subresource is not served.
	TokenIssuer registry.TokenIssuer
	// Connector reaches kubelets and pods for log, exec, attach, portforward and proxy. Nil: they are answered 503.
	Connector registry.Connector
	// MaxTokenExpiration is the longest life of its tokens; a request for more is shortened to it. Default 0: no bound.
	MaxTokenExpiration time.Duration
	// DenyPrivileged refuses pods, and what makes pods, with a privileged container. Default false.
	DenyPrivileged bool
	// ServiceNetwork is where Services get their addresses and ports from. Default kube-apiserver's ranges.
	ServiceNetwork ServiceNetwork
	// Replica is this process among the Store's Replicas: while its key is there it is alive. Default: it is alone, and whatever
	// was under way when somebody repairs was left by a process before it.
	Replica string
	// EventTTL is how long Events are kept. Default an hour.
	EventTTL time.Duration
	// Webhooks is how webhooks are reached: those of admission, and those that convert custom resources. Default: by URL.
	Webhooks admission.Webhooks
	// Admission says what every write passes after authorization. Default NamespaceLifecycle alone.
	Admission admission.Config
	// RESTMapper knows the kinds that backends serve too, and asks nobody. Nil, or nil when asked: only the kinds that are
	// served here are known to admission.
	RESTMapper func() meta.RESTMapper
	// Storage says how objects are stored.
	Storage Storage
	// Groups are those that are built in. Default kinds.Base; package kinds/cluster has more.
	Groups []registry.Group
	// Definitions are the OpenAPI definitions of kinds in Groups that Portico does not have itself, as openapi-gen writes them.
	// Nil: there are no such kinds.
	Definitions common.GetOpenAPIDefinitions
	// BuildDocument builds their OpenAPI documents. Required with such kinds.
	BuildDocument DocumentBuilder
	// RuntimeConfig says which of Groups are served. Default all.
	RuntimeConfig RuntimeConfig
	// Logger may be nil.
	Logger *zap.Logger
}

// Server serves the local groups.
type Server struct {
	cfg   Config
	log   *zap.Logger
	codec *codecs
	own   definitionsClient

	ready   chan struct{} // closed once, when serving is first set
	served  atomic.Pointer[served]
	changes *changeNotifier
	merging sync.Mutex // makes served follow builtIn and custom in their order
	builtIn Discovery
	custom  *crds.Definitions // written before ready is closed
	// repairer too is written before ready is closed.
	repairer *allocation.Repairer
	// definitions and factory too.
	definitions definitionReader
	factory     *storageFactory
	openAPIv3   func() []openapidocs.Document // made at the first call, as openAPIv2
	openAPIv2   func() openapidocs.Document
	added       atomic.Pointer[addedDocuments]

	mu        sync.RWMutex   // guards the two handlers, and the step from them to inFlight
	installed http.Handler   // nil until there are storages, and after the end
	serving   http.Handler   // nil before Ready and after the end
	inFlight  sync.WaitGroup // requests inside the handlers
	stop      context.Context
	halt      context.CancelFunc // ends every request in flight; called when Run ends
}

// New prepares codecs and nothing that runs.
func New(cfg Config) (*Server, error) {
	switch {
	case cfg.Store == nil:
		return nil, errors.New("local groups: no store")
	case cfg.Authorizer == nil || cfg.RuleResolver == nil:
		return nil, errors.New("local groups: no authorizer or no rule resolver")
	}
	cfg.Logger = cmp.Or(cfg.Logger, zap.NewNop())
	boundPatches()
	if cfg.Groups == nil {
		cfg.Groups = kinds.Base()
	}
	cfg.Groups = slices.Clone(cfg.Groups)
	slices.SortStableFunc(cfg.Groups, func(a, b registry.Group) int { return b.Priority - a.Priority })
	cfg.RuntimeConfig.table = builtInVersions(cfg.Groups)
	c, err := newCodecs(cfg.Groups)
	if err != nil {
		return nil, fmt.Errorf("local groups: %w", err)
	}
	if err := c.storeAs(cfg.Storage.MediaType); err != nil {
		return nil, fmt.Errorf("local groups: %w", err)
	}
	s := &Server{cfg: cfg, log: cfg.Logger, codec: c, ready: make(chan struct{}), changes: newChangeNotifier()}
	s.openAPIv3, s.openAPIv2 = sync.OnceValue(cfg.RuntimeConfig.documents), sync.OnceValue(cfg.RuntimeConfig.swagger)
	s.added.Store(&addedDocuments{})
	s.served.Store(&served{groupVersions: sets.New(s.BuiltIn()...)})
	if s.own, err = newDefinitionsClient(s); err != nil {
		return nil, fmt.Errorf("local groups: %w", err)
	}
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
	factory := newStorageFactory(client, s.cfg.Store.Prefix(), s.codec, s.cfg.Storage)
	defer factory.close()
	if _, without := s.cfg.Store.StartedFrom(); without {
		factory.later = func(directory string) bool { return !s.cfg.Store.HasInState(directory) }
	}
	s.factory = factory
	stopDecoders := s.codec.decoders.start()
	defer stopDecoders()
	api, err := install(s.cfg, s.codec, factory, s.own, s.merge, s.mapper(), s.newAdmission)
	if err != nil {
		return fmt.Errorf("local groups: %w", err)
	}
	defer api.admission.Abandon()
	if err := factory.awaitCaches(ctx, cacheTimeout); err != nil {
		stopUnstarted(api.custom)
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("local groups: %w", err)
	}
	stopDecoders()
	s.added.Store(&api.added)
	s.builtIn, s.custom, s.repairer, s.definitions = api.discovery, api.custom, api.repairer, api.definitions
	s.mu.Lock()
	s.installed = api.handler
	s.mu.Unlock()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	behind, ctx := errgroup.WithContext(ctx)
	behind.Go(func() error { return labelledRun(ctx, "custom resources", s.custom.Run) })
	behind.Go(func() error { return labelledRun(ctx, "admission", api.admission.Run) })
	if allClosed(ctx, s.custom.Ready(), api.admission.Ready()) {
		s.merge()
		s.mu.Lock()
		s.serving = api.handler
		s.mu.Unlock()
		close(s.ready)
		s.log.Info("local groups are ready", zap.Duration("took", time.Since(started)))
		<-ctx.Done()
	}
	s.drain()
	cancel()
	return behind.Wait()
}

// AwaitEtcd returns when all objects are served as etcd has them, and not as a state snapshot had them that the store started from. It
// is an error if ctx ended first. It must not be called before Ready.
func (s *Server) AwaitEtcd(ctx context.Context) error { return s.factory.awaitEtcd(ctx) }

func labelledRun(ctx context.Context, what string, run func(context.Context) error) error {
	if err := run(ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// allClosed waits for all channels, and is false when ctx ends first.
func allClosed(ctx context.Context, channels ...<-chan struct{}) bool {
	for _, c := range channels {
		select {
		case <-c:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// merge makes what is served here and what definitions serve one, and says that it changed.
func (s *Server) merge() {
	s.merging.Lock()
	defer s.merging.Unlock()
	s.served.Store(withCustom(s.builtIn, s.BuiltIn(), s.custom.Served()))
	s.changes.notify()
}

// drain turns new requests away, ends those in flight, and waits for them within drainTimeout.
func (s *Server) drain() {
	s.mu.Lock()
	s.installed, s.serving = nil, nil
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
func (s *Server) Handler() http.Handler { return s.handlerOf(&s.serving) }

// handlerOf serves by one of the two handlers, as it is when a request comes.
func (s *Server) handlerOf(current *http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler, done := s.enter(current)
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
	})
}

// enter counts a request in, so that drain sees it; the handler is nil when there is nothing to serve it.
func (s *Server) enter(current *http.Handler) (http.Handler, func()) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if *current == nil {
		return nil, nil
	}
	s.inFlight.Add(1)
	return *current, s.inFlight.Done
}

func notReady() error {
	err := apierrors.NewServiceUnavailable("the local API groups are not being served: the server is starting or stopping")
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}
