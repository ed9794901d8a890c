package aggregator

import (
	"context"
	"net/http"
	"slices"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	aggregatorinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions"

	"portico.dev/internal/aggregation"
	"portico.dev/internal/apiservice"
	"portico.dev/internal/audit"
	"portico.dev/internal/auth/authn"
	"portico.dev/internal/auth/authz"
	"portico.dev/internal/auth/nodes"
	"portico.dev/internal/auth/oidc"
	"portico.dev/internal/auth/rbac"
	"portico.dev/internal/auth/serviceaccount"
	"portico.dev/internal/auth/tokenwebhook"
	"portico.dev/internal/clients"
	"portico.dev/internal/coreapi"
	"portico.dev/internal/coreapi/admission"
	"portico.dev/internal/coreapi/encryption"
	"portico.dev/internal/discovery"
	"portico.dev/internal/dispatch"
	"portico.dev/internal/fairness"
	"portico.dev/internal/fleet"
	fleetclient "portico.dev/internal/fleet/client"
	"portico.dev/internal/lifecycle"
	"portico.dev/internal/lifecycle/debts"
	"portico.dev/internal/lifecycle/garbage"
	"portico.dev/internal/metrics"
	"portico.dev/internal/nodes/kubelet"
	"portico.dev/internal/openapi"
	"portico.dev/internal/proxy"
	"portico.dev/internal/replicas/cluster"
	"portico.dev/internal/replicas/peers"
	"portico.dev/internal/routes/merge"
	"portico.dev/internal/routetable"
	"portico.dev/internal/server"
	"portico.dev/internal/store"
	"portico.dev/internal/store/backup"
	"portico.dev/internal/transport"
)

// parts contains every part of the server, built but not started. The order of the fields is the order of wiring.
type parts struct {
	cfg Config
	*prepared
	log *zap.Logger
	// authoritiesReplaced is called after the authorities in the key directory have changed (pki.Rotate).
	authoritiesReplaced func()

	*aggregation.Base
	clock clock

	store    *store.Store
	replicas *store.Replicas
	// joinTokens, joins and clusterAdmin are nil unless etcd is embedded and has several members.
	joinTokens   *cluster.Tokens
	joins        *cluster.Server
	clusterAdmin *cluster.Admin

	sharedKeys  *peers.SharedKeys
	encryption  *encryption.Encryption
	tokens      *serviceaccount.Tokens
	tokenLookup *tokenLookup
	issuers     *oidc.Issuers
	webhook     *tokenwebhook.Webhook // nil: no token webhook
	authn       *authn.Authenticator
	rbac        *rbac.RBAC
	nodes       *nodes.Authorizer
	authz       *authz.Authorizer
	// webhookServices sends requests of core to webhooks that are Services.
	webhookServices *admission.WebhookServices
	// kubelets sends requests of core to kubelets and pods.
	kubelets *kubelet.Connector
	core     *coreapi.Server
	fairness *fairness.Fairness // nil: only MaxRequestsInFlight and MaxMutatingRequestsInFlight limit requests

	// The in-process clients reach only the local groups. Clients that also reach backends are in controllers.go.
	clients          *clients.Client
	bootstrapClients *clients.Client // for bootstrap objects: webhooks and policies are not called
	aggregator       *aggregatorclient.Clientset
	informers        *clients.Informers
	services         aggregatorinformers.SharedInformerFactory
	apiRoutes        apiservice.APIRoutes

	peers *peers.Peers // nil: replicas do not forward requests
	debts *debts.Store
	*aggregation.Aggregation
	controllers *lifecycle.Controllers
	collector   *garbage.Collector // nil: disabled by --controllers
	debtCleaner *debts.Cleaner

	catchUps catchUps // nil: no other replica can be ahead

	clusters *fleetclient.Clusters // nil: the API of Clusters is off
	fleet    *fleet.Fleet          // nil like clusters

	router *server.Router
	health *server.Health
	// etcdIsBack is closed when this replica has started from a state snapshot and then reached etcd.
	etcdIsBack chan struct{}
	// etcdLoss decides how this replica behaves while an external etcd does not respond.
	etcdLoss *etcdLoss
	tracing  *server.TracerProvider // nil: tracing is off
	audit    *audit.Auditor         // nil: no audit events
	backups  *backups
	// schedule makes periodic backups; nil: disabled.
	schedule *backup.Schedule
	chain    http.Handler
	server   *server.Server // nil: Embedded.NoListener
}

func wire(c Config, p *prepared, log *zap.Logger) (h *parts, err error) {
	h = &parts{cfg: c, prepared: p, log: log, etcdIsBack: make(chan struct{})}
	if h.Base, err = aggregation.NewBase(c.Serving, log); err != nil {
		return nil, err
	}
	for _, step := range []func() error{h.wireState, h.wireClients, h.wireAggregation, h.wireFront} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// wireState builds storage, authentication and authorization, and the local groups, which use all three.
func (h *parts) wireState() (err error) {
	if err := h.wireStore(); err != nil {
		return err
	}
	if err := h.wireAuthentication(); err != nil {
		return err
	}
	if err := h.wireAuthorization(); err != nil {
		return err
	}
	h.wireSharedKeys()
	metrics.NewReplicas(h.Registry, func() bool {
		_, leads := h.replicas.Received()
		return leads
	}, func() bool { return h.store.Lost() == nil }, func() bool { return h.sharedKeys.Check(context.Background()) == nil })
	metrics.NewEtcdServers(h.Registry, h.store.ServersAnswer)
	h.registerStateMetrics()
	h.wireKubelets()
	h.core, err = coreapi.New(coreapi.Config{
		Store: h.store, Replica: h.replicas.Name(), Authorizer: h.authz, RuleResolver: h.authz, Aggregate: rbac.Aggregate,
		TokenAuthenticator: h.authn, TokenIssuer: issuer{h.tokens}, Connector: h.kubelets, Webhooks: h.wireWebhooks(), Storage: h.coreStorage(), Logger: h.log.Named("local"),
		Admission: h.cfg.admission(), RESTMapper: h.knownKinds, Groups: h.cfg.localGroups(), Definitions: h.cfg.Embedded.Definitions, BuildDocument: h.cfg.Embedded.BuildDocument, RuntimeConfig: h.cfg.runtimeConfig(),
		ServiceNetwork: h.cfg.Services.network(), EventTTL: h.cfg.Services.EventTTL,
		MaxTokenExpiration: h.cfg.Authentication.MaxTokenExpiration, DenyPrivileged: !h.cfg.AllowPrivileged,
	})
	return err
}

// wireAggregation builds the routing table, its documents, and the handlers of group-versions.
func (h *parts) wireAggregation() (err error) {
	if err := h.wirePeers(); err != nil {
		return err
	}
	c := h.cfg
	h.debts = debts.NewStore(h.store, h.log)
	h.etcdLoss = h.newEtcdLoss()
	h.Aggregation, err = aggregation.New(aggregation.Config{
		Base:      h.Base,
		Transport: transport.Options{Certificate: h.proxyClientCert, OwnAddresses: h.ownAddresses},
		APIServices: apiservice.Config{
			Client: h.aggregator.ApiregistrationV1().APIServices(), APIServices: h.services.Apiregistration().V1().APIServices(),
			Services: h.informers.Services(), EndpointSlices: h.informers.EndpointSlices(), Endpoints: h.informers.Endpoints(),
			Local: h.visible(), CRDs: h.core.CRDs(), APIRoutes: &h.apiRoutes,
			WithoutEtcd: func() bool { _, without := h.withoutEtcd(); return without },
			Peers:       h.replicas.Section(store.VerdictSection), Hops: h.hops, Replica: h.replicas.Name(), Events: h.clients.CoreV1().Events(metav1.NamespaceDefault),
			Debts: h.debts,
		},
		Discovery: discovery.Config{
			Local: h.localDiscovery, LocalChanged: h.core.Changed, Storage: documentStorage{h.store, "discovery/"}, Address: h.address(),
		},
		OpenAPI: openapi.Config{
			Local: h.localDocuments, LocalV2: h.localSwagger, LocalChanged: h.core.Changed, Storage: documentStorage{h.store, "openapi/"},
		},
		WarnOfStaleDocuments: true, Resources: remoteResources,
		Proxy: proxy.Config{
			IdentityHeaders:        slices.Concat(c.RequestHeaderUsernameHeaders, c.RequestHeaderUIDHeaders, c.RequestHeaderGroupHeaders),
			IdentityHeaderPrefixes: c.RequestHeaderExtraHeaderPrefixes,
		},
		Handlers: h.handlers(),
	})
	return err
}

// handlers returns the part of the handlers' configuration that only a front door has.
func (h *parts) handlers() dispatch.Config {
	builtIn := sets.New(h.core.BuiltIn()...)
	merger := merge.New(h.Memory.Share(merge.MaxBytes, 6))
	h.Metrics.Buffered.Add(metrics.BufferedMerges, merger.Charged)
	c := dispatch.Config{
		Local: h.onlyWithEtcd(server.ForLocal(h.Bodies, h.core.Handler())), LocalGroupVersions: h.localGroupVersions, Settle: h.settleDiscovery,
		Warning: h.stateWarning, Authorizer: h.authz,
		Stored: &dispatch.Stored{
			Merger: merger, InProcess: coreapi.InProcess,
			CustomResource: func(r schema.GroupVersionResource) bool { return !builtIn.Has(r.GroupVersion()) && h.core.Serves(r) },
		},
	}
	if h.sharesEtcd() {
		c.Serves, c.CatchUp, h.catchUps = h.core.Serves, h.catchUp, make(catchUps, maxCatchUps)
	}
	if h.peers != nil && h.listener != nil {
		reachedBy := func(route *routetable.Route) []string { return h.APIServices.ReachedBy(route) }
		c.Replicas, c.ReachedBy, c.WithEtcd, c.PeerMetrics = h.peers, reachedBy, h.etcdLoss.replicasWithEtcd, h.Metrics.Peers
	}
	return c
}
