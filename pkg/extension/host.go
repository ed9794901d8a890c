package extension

import (
	"context"
	"errors"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/logging"
	"portico.dev/internal/metrics"
	"portico.dev/internal/request"
	"portico.dev/internal/respond"
	"portico.dev/internal/version"
)

// Host serves resources as a Kubernetes extension API server. Create it with New and start it with Run.
type Host struct {
	config  Config
	log     *zap.Logger
	limited *zap.Logger // log with rate limiting, for messages that unauthenticated clients cause
	// limitedAccess is the access log with rate limiting.
	limitedAccess *zap.Logger
	resolver      *request.Resolver
	metrics       *metrics.Requests
	scrape        http.Handler
	checks        *health

	issued  *versions
	setting sync.Mutex // serializes SetResources
	catalog atomic.Pointer[catalog]

	requests, watches slots

	bodies  *bodies
	pages   *pages
	scratch scratch

	auditing   sync.Mutex // guards writes to config.AuditLog
	hijacked   connections
	conversing sync.WaitGroup // counts watches and connect requests

	ready    chan struct{} // closed when the listener accepts connections
	address  atomic.Pointer[string]
	draining atomic.Bool
	// watching is canceled when watches must end.
	watching   context.Context
	endWatches context.CancelFunc
}

// New returns a Host. It does no I/O; an error reports an invalid Config.
func New(c Config) (*Host, error) {
	config, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	h := &Host{
		config:  config,
		log:     config.Logger,
		limited: logging.Limited(config.Logger),

		limitedAccess: logging.Limited(config.AccessLogger),

		resolver: request.NewResolver(),
		metrics:  metrics.NewRequests(config.Registry),
		issued:   newVersions(time.Now()),
		bodies:   newBodies(config.MaxCachedBytes),
		pages:    newPages(),
		requests: make(slots, config.MaxRequestsInFlight),
		watches:  make(slots, config.MaxWatches),
		ready:    make(chan struct{}),
	}
	h.watching, h.endWatches = context.WithCancel(context.Background())
	config.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	h.scrape = promhttp.HandlerFor(config.Registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
	h.checks = newHealth(config.Live, append([]Check{{Name: "shutdown", Check: h.notDraining}}, config.Ready...), config.Sources)
	metrics.NewSources(config.Registry, func() map[string]bool { return sourcesUp(config.Sources()) })
	first, err := newCatalog(config.Resources, nil, h)
	if err != nil {
		return nil, err
	}
	h.catalog.Store(first)
	return h, nil
}

// handler returns the complete handler chain.
func (h *Host) handler() http.Handler { return h.chain(http.HandlerFunc(h.dispatch)) }

// dispatch serves an authorized request.
func (h *Host) dispatch(w http.ResponseWriter, r *http.Request) {
	info, _ := apirequest.RequestInfoFrom(r.Context())
	if info.IsResourceRequest {
		if err := h.dispatchResource(w, r, info); err != nil {
			respond.Error(w, r, timely(err))
		}
		return
	}
	if !h.document(w, r) {
		respond.Error(w, r, notFound(r))
	}
}

// timely converts an expired deadline to a timeout Status, so that clients do not see it as an internal error.
func timely(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return apierrors.NewTimeoutError("the source did not answer in time", 0)
	}
	return err
}

func (h *Host) dispatchResource(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo) error {
	c := h.catalog.Load()
	if custom, ok := c.findCustom(info); ok {
		custom.custom.Serve(w, r, info)
		return nil
	}
	s, ok := c.find(info)
	if !ok || !s.reachable(info) {
		return notFound(r)
	}
	if s.connects(info) {
		h.conversing.Add(1)
		defer h.conversing.Done()
		s.connect(w, r, info)
		return nil
	}
	return s.serve(w, r, info, h)
}

// serve serves a request for objects.
func (s *resourceHandler) serve(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo, h *Host) error {
	can := s.source.can()
	switch verb := info.Verb; {
	case r.Method == http.MethodOptions:
		w.Header().Set("Allow", s.allows(info))
		w.WriteHeader(http.StatusNoContent)
		return nil
	case verb == "get":
		return s.get(w, r, info)
	case verb == "list":
		return s.list(w, r, info)
	case verb == "watch" && s.watchable():
		h.conversing.Add(1)
		defer h.conversing.Done()
		return s.watch(w, r, info, h)
	case verb == "create" && can.create && info.Name == "" && s.located(info):
		return s.create(w, r, info)
	case verb == "update" && can.update:
		return s.update(w, r, info)
	case verb == "patch" && can.update:
		return s.patch(w, r, info, h.config.MaxBodyBytes)
	case verb == "delete" && can.delete:
		return s.delete(w, r, info)
	case verb == "deletecollection" && can.delete && s.located(info):
		return s.deleteCollection(w, r, info)
	}
	w.Header().Set("Allow", s.allows(info))
	return methodNotAllowed(r)
}

// located reports whether objects can be created and deleted at the path. For a namespaced resource, the path must name a
// namespace.
func (s *resourceHandler) located(info *apirequest.RequestInfo) bool {
	return !s.namespaced || info.Namespace != ""
}

// allows returns the methods that the path of the request supports.
func (s *resourceHandler) allows(info *apirequest.RequestInfo) string {
	can := s.source.can()
	methods := "GET, HEAD, OPTIONS"
	switch {
	case info.Name != "":
		if can.update {
			methods += ", PUT, PATCH"
		}
		if can.delete {
			methods += ", DELETE"
		}
	case s.located(info):
		if can.create {
			methods += ", POST"
		}
		if can.delete {
			methods += ", DELETE"
		}
	}
	return methods
}

// reachable reports whether the path can exist. A cluster-scoped resource is not in a namespace, and an object of a
// namespaced resource is.
func (s *resourceHandler) reachable(info *apirequest.RequestInfo) bool {
	if info.Subresource != "" && !s.connects(info) {
		return false
	}
	if !s.namespaced {
		return info.Namespace == ""
	}
	return info.Name == "" || info.Namespace != "" || info.Verb == "list" || info.Verb == "watch"
}

// document serves non-resource paths. It returns false if the path does not exist.
func (h *Host) document(w http.ResponseWriter, r *http.Request) bool {
	path := r.URL.Path
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		respond.Error(w, r, methodNotAllowed(r))
		return true
	}
	switch {
	case path == "/":
		respond.JSON(w, http.StatusOK, map[string][]string{"paths": h.paths()})
	case path == "/version" || path == "/version/":
		respond.JSON(w, http.StatusOK, version.Get())
	case path == "/metrics":
		h.scrape.ServeHTTP(w, r)
	case path == "/apis" || strings.HasPrefix(path, "/apis/"):
		return h.catalog.Load().discovery.serve(w, r)
	case strings.HasPrefix(path, "/openapi/"):
		return h.catalog.Load().openapi.serve(w, r)
	case strings.HasPrefix(path, "/debug/pprof/") && h.config.Profiling:
		profile(w, r)
	default:
		return false
	}
	return true
}

func profile(w http.ResponseWriter, r *http.Request) {
	switch strings.TrimPrefix(r.URL.Path, "/debug/pprof/") {
	case "cmdline":
		pprof.Cmdline(w, r)
	case "profile":
		pprof.Profile(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r)
	}
}

func (h *Host) paths() []string {
	paths := []string{"/apis"}
	for _, group := range h.catalog.Load().discovery.now().groups.Groups {
		paths = append(paths, "/apis/"+group.Name)
		for _, v := range group.Versions {
			paths = append(paths, "/apis/"+v.GroupVersion)
		}
	}
	return append(paths, "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version")
}
