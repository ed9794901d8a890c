package extension

import (
	"context"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/metrics"
	"portico.dev/internal/request"
	"portico.dev/internal/respond"
	"portico.dev/internal/version"
)

// Host serves resources as a Kubernetes extension API server. New makes it, Run serves until its context ends.
type Host struct {
	config   Config
	log      *zap.Logger
	resolver *request.Resolver
	metrics  *metrics.Requests
	scrape   http.Handler
	checks   *health

	served    map[schema.GroupVersionResource]*served
	discovery *discovery
	openapi   *openapi

	requests, watches slots

	ready    chan struct{} // closed when the listener accepts
	address  atomic.Pointer[string]
	draining atomic.Bool
	// watching ends when watches must.
	watching   context.Context
	endWatches context.CancelFunc
}

// New makes a host. It does no I/O; an error is a mistake in c.
func New(c Config) (*Host, error) {
	config, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	h := &Host{
		config:   config,
		log:      config.Logger,
		resolver: request.NewResolver(),
		metrics:  metrics.NewRequests(config.Registry),
		served:   map[schema.GroupVersionResource]*served{},
		requests: make(slots, config.MaxRequestsInFlight),
		watches:  make(slots, config.MaxWatches),
		ready:    make(chan struct{}),
	}
	h.watching, h.endWatches = context.WithCancel(context.Background())
	config.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	h.scrape = promhttp.HandlerFor(config.Registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
	h.checks = newHealth(config.Live, append([]Check{{Name: "shutdown", Check: h.notDraining}}, config.Ready...))
	issued := newVersions(time.Now())
	for _, s := range config.Resources {
		h.served[s.gvr] = newServed(s, issued)
	}
	if h.discovery, err = newDiscovery(config.Resources); err != nil {
		return nil, err
	}
	if h.openapi, err = newOpenAPI(config.Resources, version.Portico); err != nil {
		return nil, err
	}
	return h, nil
}

func (h *Host) hosts(info *apirequest.RequestInfo) bool {
	_, ok := h.served[schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}]
	return ok
}

// handler is the whole of what the host answers.
func (h *Host) handler() http.Handler { return h.chain(http.HandlerFunc(h.dispatch)) }

// dispatch answers a request that may be answered.
func (h *Host) dispatch(w http.ResponseWriter, r *http.Request) {
	info, _ := apirequest.RequestInfoFrom(r.Context())
	if info.IsResourceRequest {
		if err := h.dispatchResource(w, r, info); err != nil {
			respond.Error(w, r, err)
		}
		return
	}
	if !h.document(w, r) {
		respond.Error(w, r, notFound(r))
	}
}

func (h *Host) dispatchResource(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo) error {
	s, ok := h.served[schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}]
	if !ok || info.Subresource != "" || !s.reachable(info) {
		return notFound(r)
	}
	switch info.Verb {
	case "get", "list":
		return s.read(w, r, info)
	case "watch":
		if s.watchable() {
			return s.watch(w, r, info, h)
		}
	}
	return methodNotAllowed(r)
}

// reachable: a cluster-scoped resource is not found inside a namespace, nor one object of a namespaced one outside.
func (s *served) reachable(info *apirequest.RequestInfo) bool {
	if !s.namespaced {
		return info.Namespace == ""
	}
	switch info.Verb {
	case "get", "update", "patch", "delete":
		return info.Namespace != ""
	}
	return true
}

// document answers paths that are no resources. It reports whether there is something at the path.
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
		return h.discovery.serve(w, r)
	case strings.HasPrefix(path, "/openapi/"):
		return h.openapi.serve(w, r)
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
	for _, group := range h.discovery.groups.Groups {
		paths = append(paths, "/apis/"+group.Name)
		for _, v := range group.Versions {
			paths = append(paths, "/apis/"+v.GroupVersion)
		}
	}
	return append(paths, "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version")
}
