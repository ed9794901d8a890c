package aggregator

import (
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/authentication/user"
	clientdiscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/legacyregistry"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	aggregatorinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/audit"
	"portico.dev/internal/auth/authn"
	"portico.dev/internal/auth/authz"
	"portico.dev/internal/auth/oidc"
	"portico.dev/internal/auth/rbac"
	"portico.dev/internal/auth/serviceaccount"
	"portico.dev/internal/auth/tokenwebhook"
	"portico.dev/internal/clients"
	"portico.dev/internal/coreapi"
	"portico.dev/internal/coreapi/encryption"
	"portico.dev/internal/discovery"
	"portico.dev/internal/fairness"
	"portico.dev/internal/lifecycle"
	"portico.dev/internal/lifecycle/debts"
	"portico.dev/internal/lifecycle/garbage"
	"portico.dev/internal/metrics"
	"portico.dev/internal/openapi"
	"portico.dev/internal/overload"
	"portico.dev/internal/pki"
	"portico.dev/internal/proxy"
	"portico.dev/internal/server"
	"portico.dev/internal/server/tracing"
	"portico.dev/internal/store"
	"portico.dev/internal/store/backup"
	"portico.dev/internal/transport"
	"portico.dev/internal/version"
)

// house is every room of the front door, built and not yet started. The order of the fields is the order of wiring.
type house struct {
	cfg Config
	*prepared
	log      *zap.Logger
	registry *prometheus.Registry
	metrics  *metrics.Metrics
	memory   overload.Limit
	overload *overload.Monitor // nil: memory has no limit, and nobody is refused for it

	store      *store.Store
	replicas   *store.Replicas
	encryption *encryption.Encryption
	tokens     *serviceaccount.Tokens
	lookup     *lateLookup
	issuers    *oidc.Issuers
	webhook    *tokenwebhook.Webhook // nil: no server is asked about tokens
	authn      *authn.Authenticator
	rbac       *rbac.RBAC
	authz      *authz.Authorizer
	core       *coreapi.Server
	fairness   *fairness.Fairness // nil: requests are bounded, and take no turns

	// The two clients of our own: clients reaches the local groups, everywhere reaches backends too.
	clients    *clients.Client
	founding   *clients.Client // for what the start waits for: no webhook and no policy can hold it up
	aggregator *aggregatorclient.Clientset
	informers  informers.SharedInformerFactory
	services   aggregatorinformers.SharedInformerFactory

	transport   *transport.Set
	ledger      *debts.Ledger
	apiservices *apiservice.Controller
	discovery   *discovery.Merger
	openapi     *openapi.Library
	controllers *lifecycle.Controllers
	collector   *garbage.Collector // nil: somebody else collects
	payer       *debts.Payer

	proxy   *proxy.Proxy
	router  *server.Router
	health  *server.Health
	drainer *server.Drainer
	tracing *tracing.Provider // nil: no request is traced
	audit   *audit.Auditor    // nil: nothing is written down
	backups *backups
	// schedule makes backups by itself; nil: nobody asked for them.
	schedule *backup.Schedule
	server   *server.Server
}

// lateLookup finds what service account tokens are bound to. Tokens are wired before the informers that it reads.
type lateLookup struct{ serviceaccount.LiveLookup }

// self is who the front door is when it calls itself. It never leaves the process.
var self = &user.DefaultInfo{Name: "system:apiserver", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}

func wire(c Config, p *prepared, log *zap.Logger) (*house, error) {
	h := &house{cfg: c, prepared: p, log: log, registry: prometheus.NewRegistry()}
	h.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	h.metrics = metrics.New(h.registry)
	h.metrics.Engines.Use(string(c.HTTPEngine), string(c.BackendEngine))
	for _, step := range []func() error{h.wireOverload, h.wireState, h.wireClients, h.wireRoutes, h.wireFront} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// wireOverload leaves overload nil when memory has no limit.
func (h *house) wireOverload() (err error) {
	if h.memory, err = overload.Find(h.cfg.MemoryLimit); err != nil || h.memory.Bytes == 0 {
		return err
	}
	h.overload = overload.New(overload.Config{Limit: h.memory, Metrics: h.metrics.Overload, Logger: h.log.Named("overload")})
	return nil
}

// wireState is storage, who, may they, and the local groups that ask all three.
func (h *house) wireState() (err error) {
	if err := h.wireStore(); err != nil {
		return err
	}
	if err := h.wireAuthentication(); err != nil {
		return err
	}
	if err := h.wireAuthorization(); err != nil {
		return err
	}
	h.core, err = coreapi.New(coreapi.Config{
		Store: h.store, Replica: h.replicas.Name(), Authorizer: h.authz, RuleResolver: h.authz, Aggregate: rbac.Aggregate,
		TokenAuthenticator: h.authn, TokenIssuer: issuer{h.tokens}, Webhooks: h.webhooks(), Storage: h.storedAs(), Logger: h.log.Named("local"),
		Admission: h.cfg.Admission, RESTMapper: h.knownKinds, RuntimeConfig: h.cfg.runtimeConfig(),
		ServiceNetwork: h.cfg.Services.network(), EventTTL: h.cfg.Services.EventTTL,
		MaxTokenExpiration: h.cfg.Authentication.MaxTokenExpiration, DenyPrivileged: !h.cfg.AllowPrivileged,
	})
	return err
}

// wireClients is our own way in, and the caches that every controller shares.
func (h *house) wireClients() (err error) {
	config := unthrottled(h.core.ClientConfig(self))
	if h.clients, err = clients.New(config); err != nil {
		return fmt.Errorf("client of the local groups: %w", err)
	}
	founding := unthrottled(h.core.FoundingConfig(self))
	if h.founding, err = clients.New(founding); err != nil {
		return fmt.Errorf("client of what every cluster starts with: %w", err)
	}
	if h.aggregator, err = aggregatorclient.NewForConfig(founding); err != nil {
		return fmt.Errorf("client of apiservices: %w", err)
	}
	h.informers = clients.NewInformers(h.clients, lean())
	h.services = aggregatorinformers.NewSharedInformerFactoryWithOptions(h.aggregator, 0, aggregatorinformers.WithTransform(lean()))
	core := h.informers.Core().V1()
	h.lookup.LiveLookup = serviceaccount.LiveLookup{
		ServiceAccounts: core.ServiceAccounts().Lister(), Pods: core.Pods().Lister(),
		Secrets: core.Secrets().Lister(), Nodes: core.Nodes().Lister(), Client: h.clients.CoreV1(),
	}
	h.requestInformers()
	return nil
}

// requestInformers asks for every cache before the factories start, because they start only what was asked for.
func (h *house) requestInformers() {
	core, roles := h.informers.Core().V1(), h.informers.Rbac().V1()
	for _, informer := range []interface {
		Informer() cache.SharedIndexInformer
	}{
		core.Namespaces(), core.ServiceAccounts(), core.Pods(), core.Secrets(), core.Nodes(), core.Services(),
		core.ResourceQuotas(),
		h.informers.Discovery().V1().EndpointSlices(),
		roles.Roles(), roles.RoleBindings(), roles.ClusterRoles(), roles.ClusterRoleBindings(),
		h.services.Apiregistration().V1().APIServices(),
	} {
		informer.Informer()
	}
}

// unthrottled lifts client-go's own rate limit: what these clients ask is answered in this process.
func unthrottled(c *rest.Config) *rest.Config {
	c.QPS = -1
	return c
}

// wireRoutes is who serves what, and what clients are told of it.
func (h *house) wireRoutes() (err error) {
	c := h.cfg
	h.transport = transport.New(transport.Options{
		Certificate: h.presented, OwnAddresses: h.ownAddresses, OnFailure: h.reportFailure,
		OnSuccess:      func(b *transport.Backend) { h.apiservices.ReportSuccess(b) },
		MaxReplayTotal: h.memory.Share(transport.MaxReplayTotal, 16),
		Engine:         c.BackendEngine, Zone: c.Zone, Metrics: h.metrics.Backends, Logger: h.log.Named("transport"),
	})
	h.ledger = debts.NewLedger(h.store, h.log)
	h.apiservices = apiservice.New(apiservice.Config{
		Client: h.aggregator, APIServices: h.services.Apiregistration().V1().APIServices(),
		Services: h.informers.Core().V1().Services(), EndpointSlices: h.informers.Discovery().V1().EndpointSlices(),
		Transport: h.transport, Local: h.core.BuiltIn(), CRDs: h.core.CRDs(), EndpointRouting: c.EnableAggregatorRouting,
		Peers: h.replicas, Replica: h.replicas.Name(), Events: h.clients.CoreV1(),
		DocumentTrouble: func(apiService string) string { return h.openapi.Trouble(apiService) },
		Debts:           h.ledger,
		Spoke:           func(b *transport.Backend) { h.reask(b) },
		Metrics:         h.metrics.Availability, Logger: h.log.Named("apiservice"),
	})
	h.discovery, err = discovery.New(discovery.Config{
		Local: h.localDiscovery, LocalChanged: h.core.Changed, Routes: h.routes, Changed: h.apiservices.Changed,
		Keep: lastKnown{h.store, "discovery/"}, Address: h.listener.Addr().String(),
		Metrics: h.metrics.Discovery, Logger: h.log.Named("discovery"),
	})
	if err != nil {
		return err
	}
	h.openapi, err = openapi.New(openapi.Config{
		Local: h.localDocuments, LocalV2: h.localSwagger, LocalChanged: h.core.Changed, Routes: h.routes, Changed: h.apiservices.Changed,
		Keep: lastKnown{h.store, "openapi/"}, Metrics: h.metrics.OpenAPI, Logger: h.log.Named("openapi"),
	})
	return err
}

// wireFront is what requests meet: chain, router, health.
func (h *house) wireFront() error {
	c := h.cfg
	h.wireProfiling()
	h.proxy = proxy.New(proxy.Config{
		Logger: h.log.Named("proxy"), Requests: h.metrics.Requests,
		IdentityHeaders:        slices.Concat(c.RequestHeaderUsernameHeaders, c.RequestHeaderUIDHeaders, c.RequestHeaderGroupHeaders),
		IdentityHeaderPrefixes: c.RequestHeaderExtraHeaderPrefixes,
	})
	h.payer = h.newPayer()
	h.drainer = server.NewDrainer()
	h.health = server.NewHealth(h.log.Named("health"), h.checks()...)
	if err := h.wireBackup(); err != nil {
		return err
	}
	h.router = &server.Router{
		Routes:             h.apiservices.Table,
		LocalGroupVersions: h.core.GroupVersions,
		Local:              server.ForLocal(server.NewBodies(h.memory, h.metrics.Overload), h.core.Handler()),
		Proxy:              h.proxy,
		Unknown:            func(route *apiservice.Route) { h.reask(route.Backend) },
		Discovery:          h.discovery,
		OpenAPI:            h.openapi,
		Static: server.NewStatic(server.StaticConfig{
			Health: h.health, Version: version.Get(),
			Gatherer:    prometheus.Gatherers{h.registry, legacyregistry.DefaultGatherer},
			Aggregation: func() any { return h.apiservices.DebugState() },
			Debts:       h.payer,
			Backup:      h.backups,
			JWKS:        h.tokens.JWKS,
			OpenIDConfiguration: func() []byte {
				return h.tokens.OpenIDConfiguration(h.url + "/openid/v1/jwks")
			},
			Profiling: c.Profiling,
		}),
	}
	if err := h.wireControllers(); err != nil {
		return err
	}
	if err := h.wireAudit(); err != nil {
		return err
	}
	if err := h.wireFairness(); err != nil {
		return err
	}
	if c.TracingEndpoint != "" {
		h.tracing = tracing.New(tracing.Config{
			Endpoint: c.TracingEndpoint, SamplingRatePerMillion: c.TracingSamplingRatePerMillion,
			Service: "aggregator", Version: version.Portico, Logger: h.log.Named("tracing"),
		})
	}
	chain, err := server.NewChain(server.ChainConfig{
		Authenticator: h.authn, Authorizer: h.authz, Ready: h.notReady, RequestTimeout: c.RequestTimeout,
		Fairness: h.fairness, MaxInFlight: c.MaxRequestsInFlight, MaxMutatingInFlight: c.MaxMutatingRequestsInFlight,
		CORSAllowedOrigins: c.CORSAllowedOrigins, AccessLog: h.accessLog(), Audit: h.auditor(), Tracer: h.tracer(),
		UpgradesNeedCreate: c.AuthorizeUpgradesAsCreate,
		GoawayChance:       c.GoawayChance, StrictTransportSecurity: c.StrictTransportSecurity,
		Overload: h.overload, OverloadMetrics: h.metrics.Overload, Memory: h.memory,
		Metrics: h.metrics.Requests, Logger: h.log.Named("server"), Drainer: h.drainer,
	}, h.router)
	if err != nil {
		return err
	}
	offered := pki.ServerConfig(h.shown)
	if err := pki.Restrict(offered, c.TLSMinVersion, c.TLSCipherSuites); err != nil {
		return err
	}
	h.server = server.New(server.Config{
		Listener: h.listener, TLS: offered, Engine: c.HTTPEngine, Handler: chain, Health: h.health, Drainer: h.drainer,
		Overload: h.overload, OverloadMetrics: h.metrics.Overload, Memory: h.memory,
		Proxy: h.proxy, Logger: h.log.Named("server"), ShutdownDelay: c.ShutdownDelay, ShutdownGrace: c.ShutdownGrace,
	})
	return nil
}

// wireControllers gives the controllers a client that reaches backends too, as any client from outside would.
func (h *house) wireControllers() error {
	inside := server.NewInternalChain(self, h.metrics.Requests, h.log.Named("server"), h.router)
	everywhere, err := metadata.NewForConfig(&rest.Config{
		Host: "https://portico.invalid", Transport: plainDeletions(coreapi.InProcess(inside)), QPS: -1,
		WarningHandler: rest.NoWarnings{}, // that a kind is deprecated is nothing to those who serve it
	})
	if err != nil {
		return fmt.Errorf("client of all groups: %w", err)
	}
	kinds, err := clientdiscovery.NewDiscoveryClientForConfig(&rest.Config{
		Host: "https://portico.invalid", Transport: coreapi.InProcess(inside), QPS: -1, WarningHandler: rest.NoWarnings{},
	})
	if err != nil {
		return fmt.Errorf("client of discovery: %w", err)
	}
	choice := lifecycle.Choice(h.cfg.Controllers)
	if choice.Runs(lifecycle.GarbageCollector) {
		h.collector = h.newCollector(everywhere)
	}
	quotas, err := h.quotas()
	if err != nil {
		return err
	}
	c := h.cfg
	h.controllers = lifecycle.New(lifecycle.Config{
		Client: h.clients, Metadata: everywhere, Namespaces: h.informers.Core().V1().Namespaces(),
		Served: h.served, Defined: h.core.DefinedResources, Changed: []func() <-chan struct{}{h.apiservices.Changed, h.discovery.Changed},
		Probe: h.apiservices.ProbeSoon, Debts: h.ledger, RootCA: h.rootCA.PEM,
		Trust: lifecycle.Trust{
			ClientCA: h.clientCA.PEM, RequestHeaderCA: h.frontProxy.PEM,
			UsernameHeaders: c.RequestHeaderUsernameHeaders, UIDHeaders: c.RequestHeaderUIDHeaders,
			GroupHeaders: c.RequestHeaderGroupHeaders, ExtraHeaderPrefixes: c.RequestHeaderExtraHeaderPrefixes,
			AllowedNames: c.RequestHeaderAllowedNames,
		},
		Founding: h.founding, Leads: h.leads, ClusterRoles: h.informers.Rbac().V1().ClusterRoles(), FrontDoor: h.frontDoor(),
		ServiceRanges: h.publishedRanges(), ServiceCIDRs: h.informers.Networking().V1().ServiceCIDRs(),
		RepairAllocations: h.core.RepairAllocations, AllocationsAbandoned: h.core.AllocationsAbandoned, Quotas: quotas, Discovery: kinds,
		Choice: choice, Logger: h.log,
	})
	return nil
}

func (h *house) accessLog() *zap.Logger {
	if !h.cfg.AccessLog {
		return nil
	}
	return h.log.Named("access")
}

// tracer is nil, and then the chain does without, unless there is somebody to send spans to.
func (h *house) tracer() trace.Tracer {
	if h.tracing == nil {
		return nil
	}
	return h.tracing.Tracer()
}

// wireAudit leaves auditor nil when events would go nowhere.
func (h *house) wireAudit() (err error) {
	c := h.cfg.Audit
	if !c.Enabled() {
		return nil
	}
	c.Metrics, c.Logger = h.metrics.Audit, h.log.Named("audit")
	h.audit, err = audit.New(c)
	return err
}

// auditor is nil, and then the chain does without, unless events go somewhere.
func (h *house) auditor() server.Auditor {
	if h.audit == nil {
		return nil
	}
	return h.audit
}
