package server

import (
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"

	"github.com/gorilla/mux"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/version"

	"portico.dev/internal/replicas/cluster"
	"portico.dev/internal/request"
	"portico.dev/internal/respond"
)

// StaticConfig configures the handlers outside the API.
type StaticConfig struct {
	Health   *Health
	Version  version.Info
	Gatherer prometheus.Gatherer
	// Aggregation returns this replica's view of each backend, for /debug/aggregation.
	Aggregation func() any
	// Debts serves /debug/debts: objects that finalized namespaces may have left at backends. Nil disables it.
	Debts Debts
	// Backup serves a POST to request.BackupPath, and to request.BackupKeysPath, which includes the keys. Nil
	// disables it.
	Backup http.Handler
	// Cluster serves cluster.MembersPath and cluster.TokensPath. Nil disables it.
	Cluster http.Handler
	// JWKS and OpenIDConfiguration let other services verify Portico's service account tokens. Nil disables them.
	JWKS, OpenIDConfiguration func() []byte
	// Handlers serve further paths. A path that ends with a slash includes all paths below it.
	Handlers map[string]http.Handler
	// Profiling serves /debug/pprof/. Default false.
	Profiling bool
}

// Debts lists cleanup debts, and forgets them one by one.
type Debts interface {
	ServeList(w http.ResponseWriter, r *http.Request)
	ServeForget(w http.ResponseWriter, r *http.Request, id string)
}

// NewStatic returns the handler for all paths outside the API. Only this handler uses gorilla/mux: API paths never
// pass through a router that cleans them.
func NewStatic(c StaticConfig) http.Handler {
	m := mux.NewRouter().SkipClean(true)
	paths := []string{"/api", "/api/v1", "/apis", "/openapi/v2", "/openapi/v3"}
	get := func(path string, h http.Handler) {
		paths = append(paths, path)
		m.Handle(path, h).Methods(http.MethodGet, http.MethodHead)
	}
	for _, root := range []string{"/healthz", "/livez", "/readyz"} {
		get(root, c.Health)
		m.Handle(root+"/{check}", c.Health).Methods(http.MethodGet, http.MethodHead)
	}
	m.Handle("/readyz/backends/{check}", c.Health).Methods(http.MethodGet, http.MethodHead)
	version := jsonOf(func() any { return c.Version })
	get("/version", version)
	m.Handle("/version/", version).Methods(http.MethodGet, http.MethodHead)
	get("/metrics", promhttp.HandlerFor(c.Gatherer, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	if c.Health != nil {
		get("/metrics/slis", promhttp.HandlerFor(c.Health.results, promhttp.HandlerOpts{}))
	}
	get("/debug/aggregation", jsonOf(c.Aggregation))
	if c.Debts != nil {
		get("/debug/debts", http.HandlerFunc(c.Debts.ServeList))
		m.HandleFunc("/debug/debts/{id}", func(w http.ResponseWriter, r *http.Request) {
			c.Debts.ServeForget(w, r, mux.Vars(r)["id"])
		}).Methods(http.MethodDelete)
	}
	if c.Backup != nil {
		paths = append(paths, request.BackupPath)
		m.Handle(request.BackupPath, c.Backup).Methods(http.MethodPost)
		m.Handle(request.BackupKeysPath, c.Backup).Methods(http.MethodPost)
	}
	if c.Cluster != nil {
		for _, path := range []string{cluster.MembersPath, cluster.TokensPath} {
			paths = append(paths, path)
			m.Handle(path, c.Cluster)
			m.PathPrefix(path + "/").Handler(c.Cluster)
		}
	}
	if c.JWKS != nil {
		get("/openid/v1/jwks", document("application/jwk-set+json", c.JWKS))
		get("/.well-known/openid-configuration", document("application/json", c.OpenIDConfiguration))
	}
	if c.Profiling {
		profiles(m)
	}
	for path, handler := range c.Handlers {
		paths = append(paths, path)
		if strings.HasSuffix(path, "/") {
			m.PathPrefix(path).Handler(handler)
		} else {
			m.Handle(path, handler)
		}
	}
	slices.Sort(paths)
	m.Handle("/", jsonOf(func() any { return map[string][]string{"paths": paths} })).Methods(http.MethodGet, http.MethodHead)
	m.NotFoundHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { respond.Error(w, r, respond.NotFound(r)) })
	m.MethodNotAllowedHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		respond.Error(w, r, notAllowed(r))
	})
	return m
}

// notAllowed returns the 405 for a path that is not a resource.
func notAllowed(r *http.Request) *apierrors.StatusError {
	return apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, r.Method, noResource, "", "", 0, false)
}

func jsonOf(value func() any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { respond.JSON(w, http.StatusOK, value()) })
}

func document(mediaType string, body func() []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", mediaType)
		w.Header().Set("Cache-Control", "public, max-age=3600")
		_, _ = w.Write(body())
	})
}

// profiles serves kube-apiserver's paths below /debug/pprof to authorized clients. As in kube-apiserver, the root
// does not list them. The command line is not served, because flags may name confidential files.
func profiles(m *mux.Router) {
	m.Handle("/debug/pprof", http.RedirectHandler("/debug/pprof/", http.StatusFound))
	m.HandleFunc("/debug/pprof/profile", pprof.Profile)
	m.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	m.HandleFunc("/debug/pprof/trace", pprof.Trace)
	m.PathPrefix("/debug/pprof/").HandlerFunc(pprof.Index)
}
