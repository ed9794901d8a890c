package server

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/fairness"
	"portico.dev/internal/filters"
	"portico.dev/internal/metrics"
	"portico.dev/internal/overload"
	"portico.dev/internal/request"
)

// ChainConfig configures the filters.
type ChainConfig struct {
	// Authenticator identifies the client. An error and (nil, false, nil) both lead to a 401: the authenticator
	// decides whether anonymous requests are allowed.
	Authenticator authenticator.Request
	// Authorizer decides whether the client may make the request.
	Authorizer authorizer.UnconditionalAuthorizer
	// Impersonation decides whether the client may impersonate. Default Authorizer.
	Impersonation authorizer.UnconditionalAuthorizer
	// Cluster returns the name of the cluster that a request is for, for the access log and audit events. If nil, or for an
	// empty name, requests are for this server.
	Cluster func(context.Context) string
	// Ready returns the reason why API requests cannot be served yet, or nil.
	Ready func() error
	// RequestTimeout limits requests that are not long-running. Default 60 s.
	RequestTimeout time.Duration
	// AdjustTimeout changes the timeout of such a request: its own, or RequestTimeout. It is for clients and backends that
	// are API servers and end the request at the same time. The response with the reason must come from the innermost
	// server. If nil, the timeout is not changed.
	AdjustTimeout func(time.Duration) time.Duration
	// Fairness limits concurrency by API Priority and Fairness. If nil, MaxInFlight and MaxMutatingInFlight apply.
	Fairness *fairness.Fairness
	// FlowUser returns the user as which a request is classified by Fairness, or exempt from the limits. If nil, it is the user of
	// the request. It is for users whom another server has authenticated.
	FlowUser func(context.Context, user.Info) user.Info
	// MaxInFlight and MaxMutatingInFlight limit concurrent requests that are not long-running. Default 400 and 200; a
	// negative value means no limit.
	MaxInFlight, MaxMutatingInFlight int
	// PassImpersonation leaves the headers of impersonation to the handler. Default false: the chain authorizes the impersonation,
	// and the request continues as the impersonated user.
	PassImpersonation bool
	// ReservedExtra is a key of extra that only this server writes: authenticated users lose it, and its impersonation is refused.
	// Empty means no key.
	ReservedExtra string
	// UpgradesNeedCreate requires the right to create, in addition to the right to get, for a GET that upgrades its
	// connection (a WebSocket). Default false, as in kube-apiserver for aggregated APIs.
	UpgradesNeedCreate bool
	// CORSAllowedOrigins are regular expressions of origins that browsers may call from. Default none.
	CORSAllowedOrigins []string
	// AnyOrigin accepts WebSockets of every Origin. It is for a server that requires the certificate of an API
	// server, which no web page has.
	AnyOrigin bool
	// GoawayChance is the fraction of HTTP/2 requests after which the client is made to open another connection.
	// Default 0.
	GoawayChance float64
	// GoawayInterval is the minimum time between two GOAWAYs. Default 0: only the chance decides.
	GoawayInterval time.Duration
	// DeniedUserAgents are regular expressions; requests with a User-Agent that matches one are refused. Default none.
	DeniedUserAgents []string
	// StrictTransportSecurity are directives for browsers (RFC 6797). Default none.
	StrictTransportSecurity []string
	// AccessLog receives one line per request. Nil disables it.
	AccessLog *zap.Logger
	// Tracer starts the span of each request. Nil disables tracing.
	Tracer trace.Tracer
	// Audit selects the requests to audit and receives their events. Nil disables auditing.
	Audit Auditor
	// Overload reports memory pressure. If nil, no request is refused because of it.
	Overload *overload.Monitor
	// OverloadMetrics counts the refused requests. Required with Overload.
	OverloadMetrics *metrics.Overload
	// Memory limits the data that is held for slow clients. The zero value means no limit.
	Memory overload.Limit
	// Buffered reports that data. May be nil.
	Buffered *metrics.Buffered
	// LargeHeaders accounts for large headers by user. It must be the same as Config.LargeHeaders. Nil disables it.
	LargeHeaders *HeaderMemory
	// Metrics counts requests.
	Metrics *metrics.Requests
	// Logger receives panics, and errors that responses do not contain.
	Logger *zap.Logger
	// Drainer counts requests, and ends the long-running ones at shutdown.
	Drainer *Drainer

	slowClients *slowClients // set by ShareSlowClients
}

// chainFilters returns the filters in the order in which a request passes them.
func chainFilters(c ChainConfig) ([]filters.Filter, error) {
	cors, err := corsFilter(c.CORSAllowedOrigins, c.AnyOrigin)
	if err != nil {
		return nil, err
	}
	goaway, err := goawayFilter(c.GoawayChance, c.GoawayInterval)
	if err != nil {
		return nil, err
	}
	userAgents, err := userAgentFilter(c.DeniedUserAgents, c.Metrics)
	if err != nil {
		return nil, err
	}
	hsts, err := hstsFilter(c.StrictTransportSecurity)
	if err != nil {
		return nil, err
	}
	resolver := request.NewResolver()
	return []filters.Filter{
		{Name: "recover", Wrap: recoverFilter(c.Logger, c.Metrics, c.slowClientsOfChain())},
		{Name: "cluster", Wrap: unless(c.Cluster == nil, clusterFilter(c.Cluster))},
		{Name: "canonicalPath", Wrap: canonicalPathFilter(c.Metrics)},
		{Name: "requestInfo", Wrap: filters.RequestInfo(resolver)},
		{Name: "auditInit", Wrap: auditInitFilter()},
		{Name: "accessLog", Wrap: accessLogFilter(c.AccessLog, c.Metrics)},
		{Name: "ready", Wrap: readyFilter(c.Ready)},
		{Name: "drain", Wrap: c.Drainer.filter()},
		{Name: "deadline", Wrap: deadlineFilter(c.RequestTimeout, c.AdjustTimeout)},
		{Name: "goaway", Wrap: goaway},
		{Name: "hsts", Wrap: hsts},
		{Name: "cors", Wrap: cors},
		{Name: "authentication", Wrap: authenticationFilter(withoutExtra(c.Authenticator, c.ReservedExtra), c.Audit, c.Logger)},
		{Name: "tracing", Wrap: tracingFilter(c.Tracer)},
		{Name: "audit", Wrap: auditFilter(c.Audit)},
		{Name: "userAgent", Wrap: userAgents},
		{Name: "overload", Wrap: overloadFilter(c.Overload, c.OverloadMetrics)},
		{Name: "headerMemory", Wrap: headerMemoryFilter(c.LargeHeaders)},
		{Name: "impersonation", Wrap: unless(c.PassImpersonation, impersonationFilter(cmp.Or(c.Impersonation, c.Authorizer), c.ReservedExtra))},
		{Name: "flowControl", Wrap: flowControlFilter(&c)},
		{Name: "authorization", Wrap: authorizationFilter(c.Authorizer, c.UpgradesNeedCreate, c.Logger)},
	}, nil
}

// unless returns a filter, or one that does nothing if off is true.
func unless(off bool, filter func(http.Handler) http.Handler) func(http.Handler) http.Handler {
	if off {
		return func(next http.Handler) http.Handler { return next }
	}
	return filter
}

// NewChain returns next behind the filters.
func NewChain(c ChainConfig, next http.Handler) (http.Handler, error) {
	all, err := chainFilters(c)
	if err != nil {
		return nil, err
	}
	return filters.Chain(next, all), nil
}

// NewInternalChain returns a handler through which Portico's controllers call next, both local groups and backends,
// without a socket. The user is fixed. The chain omits the filters that protect against untrusted clients, and
// provides the request context that handlers need.
func NewInternalChain(u user.Info, m *metrics.Requests, log *zap.Logger, next http.Handler) http.Handler {
	resolver := request.NewResolver()
	asUser := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(apirequest.WithUser(r.Context(), u)))
		})
	}
	h := asUser(next)
	h = deadlineFilter(0, nil)(h)
	h = auditInitFilter()(h)
	h = filters.RequestInfo(resolver)(h)
	return recoverFilter(log, m, nil)(h)
}
