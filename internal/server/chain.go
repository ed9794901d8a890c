package server

import (
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

// ChainConfig is what the filters need.
type ChainConfig struct {
	// Authenticator identifies the client. An error is 401; (nil, false, nil) is 401 too: anonymous requests are the
	// authenticator's to allow.
	Authenticator authenticator.Request
	// Authorizer decides whether the client may do what it asks.
	Authorizer authorizer.UnconditionalAuthorizer
	// Ready is why API requests cannot be answered yet, or nil.
	Ready func() error
	// RequestTimeout ends requests that are not long-running. Default 60 s.
	RequestTimeout time.Duration
	// EndBeforeClient ends them a tenth earlier, at most a second: for clients that are API servers. Those end requests when their time is
	// over, too, and the response that says why must be there by then.
	EndBeforeClient bool
	// Fairness limits concurrency by API Priority and Fairness. Nil: MaxInFlight and MaxMutatingInFlight hold instead.
	Fairness *fairness.Fairness
	// MaxInFlight and MaxMutatingInFlight bound requests that are not long-running. Default 400 and 200; negative: no bound.
	MaxInFlight, MaxMutatingInFlight int
	// UpgradesNeedCreate requires the right to create from whoever upgrades a GET (a websocket), beside the right to
	// get. Default false: as kube-apiserver does for aggregated APIs.
	UpgradesNeedCreate bool
	// CORSAllowedOrigins are regular expressions of origins that browsers may call from. Default none.
	CORSAllowedOrigins []string
	// AnyOrigin accepts WebSockets whatever their Origin, for a server that only API servers can use: no page has their certificate.
	AnyOrigin bool
	// GoawayChance asks this part of the requests over HTTP/2 to come by another connection next time. Default 0.
	GoawayChance float64
	// GoawayInterval is the least time between two such requests. Default 0: the chance alone decides.
	GoawayInterval time.Duration
	// DeniedUserAgents are regular expressions; requests with a User-Agent that matches one are refused. Default none.
	DeniedUserAgents []string
	// StrictTransportSecurity are directives for browsers (RFC 6797). Default none.
	StrictTransportSecurity []string
	// AccessLog logs one line for each request. Nil: none.
	AccessLog *zap.Logger
	// Tracer starts the span of each request. Nil: there are none.
	Tracer trace.Tracer
	// Audit decides what is audited of each request, and takes the events. Nil: nothing is audited.
	Audit Auditor
	// Overload says how short memory is. Nil: no request is refused for that.
	Overload *overload.Monitor
	// OverloadMetrics counts the requests refused. Needed with Overload.
	OverloadMetrics *metrics.Overload
	// Memory bounds what is held for slow clients. The zero value is no limit.
	Memory overload.Limit
	// LargeHeaders accounts for large headers by their users. It is that of Config. Nil: they are not accounted for.
	LargeHeaders *HeaderMemory
	// Metrics counts requests.
	Metrics *metrics.Requests
	// Logger gets panics and errors that clients are not told.
	Logger *zap.Logger
	// Drainer counts requests, and ends the long-running ones at shutdown.
	Drainer *Drainer
}

// chainFilters is the chain in the order a request meets it.
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
		{Name: "recover", Wrap: recoverFilter(c.Logger, c.Metrics, newSlowClients(c.RequestTimeout, c.Memory.Share(slowBudget, 8)))},
		{Name: "canonicalPath", Wrap: canonicalPathFilter(c.Metrics)},
		{Name: "requestInfo", Wrap: filters.RequestInfo(resolver)},
		{Name: "auditInit", Wrap: auditInitFilter()},
		{Name: "accessLog", Wrap: accessLogFilter(c.AccessLog, c.Metrics)},
		{Name: "ready", Wrap: readyFilter(c.Ready)},
		{Name: "drain", Wrap: c.Drainer.filter()},
		{Name: "deadline", Wrap: deadlineFilter(c.RequestTimeout, c.EndBeforeClient)},
		{Name: "goaway", Wrap: goaway},
		{Name: "hsts", Wrap: hsts},
		{Name: "cors", Wrap: cors},
		{Name: "authentication", Wrap: authenticationFilter(c.Authenticator, c.Audit, c.Logger)},
		{Name: "tracing", Wrap: tracingFilter(c.Tracer)},
		{Name: "audit", Wrap: auditFilter(c.Audit)},
		{Name: "userAgent", Wrap: userAgents},
		{Name: "overload", Wrap: overloadFilter(c.Overload, c.OverloadMetrics)},
		{Name: "headerMemory", Wrap: headerMemoryFilter(c.LargeHeaders)},
		{Name: "impersonation", Wrap: impersonationFilter(c.Authorizer)},
		{Name: "flowControl", Wrap: flowControlFilter(&c)},
		{Name: "authorization", Wrap: authorizationFilter(c.Authorizer, c.UpgradesNeedCreate, c.Logger)},
	}, nil
}

// NewChain puts the filters before next.
func NewChain(c ChainConfig, next http.Handler) (http.Handler, error) {
	all, err := chainFilters(c)
	if err != nil {
		return nil, err
	}
	return filters.Chain(next, all), nil
}

// NewInternalChain lets our own controllers call next, local groups and backends alike, without a socket: the user is
// given, everything that guards against untrusted clients is left out, and what a handler needs in a request's context
// is there.
func NewInternalChain(u user.Info, m *metrics.Requests, log *zap.Logger, next http.Handler) http.Handler {
	resolver := request.NewResolver()
	asUser := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(apirequest.WithUser(r.Context(), u)))
		})
	}
	h := asUser(next)
	h = deadlineFilter(0, false)(h)
	h = auditInitFilter()(h)
	h = filters.RequestInfo(resolver)(h)
	return recoverFilter(log, m, nil)(h)
}
