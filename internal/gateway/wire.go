package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	aggregatorinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions"

	"portico.dev/internal/aggregation"
	"portico.dev/internal/apiservice"
	"portico.dev/internal/auth/delegated"
	"portico.dev/internal/clients"
	"portico.dev/internal/discovery"
	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/gateway/lastknown"
	"portico.dev/internal/metrics"
	"portico.dev/internal/openapi"
	"portico.dev/internal/pki"
	"portico.dev/internal/proxy"
	routingclient "portico.dev/internal/routes/client"
	"portico.dev/internal/routes/v1alpha1"
	"portico.dev/internal/routetable"
	"portico.dev/internal/run"
	"portico.dev/internal/server"
	"portico.dev/internal/transport"
	"portico.dev/internal/version"
)

// Gateway contains every part, built but not started. The order of the fields is the order of wiring.
type Gateway struct {
	cfg Config
	log *zap.Logger
	*aggregation.Base

	listener, metricsListener net.Listener // metricsListener is nil if metrics are not served

	client     *clients.Client
	aggregator *aggregatorclient.Clientset
	informers  *clients.Informers
	view       apiServices // adopted APIServices, with their original servers
	registered aggregatorinformers.SharedInformerFactory
	apiRoutes  apiservice.APIRoutes
	trust      *delegated.Delegated
	election   *election
	peers      *peers
	keys       *keys
	upkeep     *upkeep
	*aggregation.Aggregation
	router *server.Router
	health *server.Health
	server *server.Server
}

// New builds a gateway and binds its ports.
func New(c Config, log *zap.Logger) (*Gateway, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	config, err := c.client()
	if err != nil {
		return nil, err
	}
	g := &Gateway{cfg: c, log: log}
	if g.Base, err = aggregation.NewBase(c.Serving, log); err != nil {
		return nil, err
	}
	if err := g.listen(); err != nil {
		return nil, err
	}
	for _, step := range []func() error{func() error { return g.wireClients(config) }, g.wireTrust, g.wireAggregation, g.wireFront} {
		if err := step(); err != nil {
			return nil, errors.Join(err, g.close())
		}
	}
	return g, nil
}

// client returns the configuration of the API server's clients.
func (c *Config) client() (config *rest.Config, err error) {
	if c.Kubeconfig == "" {
		config, err = rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("this process is not in a pod; name a kubeconfig with --kubeconfig: %w", err)
		}
	} else if config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	config.UserAgent, config.QPS, config.Burst = "portico-gateway", 50, 100
	if c.Dial != nil {
		config.Dial = func(ctx context.Context, _, address string) (net.Conn, error) { return c.Dial(ctx, address) }
	}
	return config, nil
}

func (g *Gateway) listen() (err error) {
	if g.listener = g.cfg.Listener; g.listener == nil {
		if g.listener, err = g.cfg.Listen(); err != nil {
			return err
		}
	}
	if g.cfg.MetricsBindAddress == "" {
		return nil
	}
	if g.metricsListener, err = net.Listen("tcp", g.cfg.MetricsBindAddress); err != nil {
		return errors.Join(fmt.Errorf("--metrics-bind-address: %w", err), g.close())
	}
	return nil
}

// close closes the listeners.
func (g *Gateway) close() error {
	err := g.listener.Close()
	if g.metricsListener != nil {
		err = errors.Join(err, g.metricsListener.Close())
	}
	return err
}

// Address returns the address on which requests are accepted.
func (g *Gateway) Address() string { return g.listener.Addr().String() }

// MetricsAddress returns the address on which metrics are served. It is empty if they are not served.
func (g *Gateway) MetricsAddress() string {
	if g.metricsListener == nil {
		return ""
	}
	return g.metricsListener.Addr().String()
}

// Ready returns a channel that is closed when requests are served.
func (g *Gateway) Ready() <-chan struct{} { return g.server.Ready() }

// wireClients builds the clients and informers of the API server, and the parts that coordinate replicas.
func (g *Gateway) wireClients(config *rest.Config) (err error) {
	informed := withReconnects(config, g.log.Named("client"))
	if g.client, err = clients.New(informed); err != nil {
		return err
	}
	if g.aggregator, err = aggregatorclient.NewForConfig(informed); err != nil {
		return err
	}
	leases, err := coordinationv1.NewForConfig(informed)
	if err != nil {
		return err
	}
	g.election = newElection(leases, g.cfg.Namespace, g.cfg.Service, run.InstanceName(), g.log.Named("election"))
	g.peers = newPeers(g.election, leases.Leases(g.cfg.Namespace), defaultPeerTimes, g.log.Named("peers"))
	g.informers = clients.NewInformers(g.client, nil)
	g.registered = aggregatorinformers.NewSharedInformerFactory(g.aggregator, 0)
	if g.apiRoutes.Client, err = routingclient.New(informed); err != nil {
		return err
	}
	g.apiRoutes.Namespaces, g.apiRoutes.Missing = g.informers.Namespaces().Lister(), notAdoptedYet
	g.apiRoutes.Informer = g.informers.InformerFor(&v1alpha1.APIRoute{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		return apiRoutes{g.apiRoutes.Client, kindInterval}.informer()
	})
	g.view = view{g.cfg.gateway(), g.aggregator.ApiregistrationV1().APIServices()}.informer()
	g.trust, err = delegated.New(delegated.Config{
		Client: config, FrontProxyOnly: true, Distrust: g.cfg.gateway().IsFrontProxyAuthority, StartTimeout: startTimeout, Logger: g.log.Named("authentication"),
	})
	return err
}

// notAdoptedYet returns the message in the status of an APIRoute while no adopted APIService has its name.
func notAdoptedYet(apiService string) string {
	return "the gateway has not adopted APIService " + apiService + ": `aggregator adopt " + apiService + "`, or, if no server has this version, write an adopted APIService yourself"
}

// wireTrust builds the gateway's own authorities, and the part that publishes them.
func (g *Gateway) wireTrust() (err error) {
	core, namespace := g.client.CoreV1(), g.cfg.Namespace
	if g.keys, err = newKeys(core.Secrets(namespace), g.cfg.gateway(), g.election.leads, g.log.Named("keys")); err != nil {
		return err
	}
	g.upkeep = &upkeep{
		gateway: g.cfg.gateway(), apiServices: g.registered.Apiregistration().V1().APIServices().Lister(),
		client: g.aggregator.ApiregistrationV1().APIServices(),
		trust:  core.ConfigMaps(adoption.TrustNamespace), own: core.ConfigMaps(namespace), keys: g.keys, leads: g.election.leads,
		routes: func() *routetable.Table { return g.APIServices.Table() }, metrics: metrics.NewGateway(g.Registry),
		log: g.log.Named("upkeep"), wake: make(chan struct{}, 1),
	}
	g.keys.published, g.keys.changed = g.upkeep.Published, g.upkeep.Wake
	return nil
}

// wireAggregation builds the parts that the front door also has.
func (g *Gateway) wireAggregation() (err error) {
	owner := statusOwner{g.cfg.gateway(), g.registered.Apiregistration().V1().APIServices().Lister()}
	g.apiRoutes.OwnsStatus = owner.ownsAPIRoute
	g.Aggregation, err = aggregation.New(aggregation.Config{
		Base:      g.Base,
		Transport: transport.Options{Certificate: g.keys.client, OwnAddresses: func() []string { return []string{g.Address()} }},
		APIServices: apiservice.Config{
			OwnsStatus: owner.ownsAPIService,
			Client:     statusWriter{g.aggregator.ApiregistrationV1().APIServices()}, APIServices: g.view,
			Services: g.informers.Services(), EndpointSlices: g.informers.EndpointSlices(),
			APIRoutes: &g.apiRoutes, Peers: g.peers, Replica: g.election.identity, Events: g.client.CoreV1().Events(metav1.NamespaceDefault),
		},
		Discovery: discovery.Config{
			Local: func() discovery.Local { return discovery.Local{} }, LocalChanged: never, Storage: g.storage(lastknown.Discovery),
		},
		OpenAPI: openapi.Config{Local: func() []openapi.Document { return nil }, LocalChanged: never, Storage: g.storage(lastknown.OpenAPI)},
		View:    documentView,
		Resources: func(snapshot *discovery.Snapshot, gv schema.GroupVersion) []apidiscoveryv2.APIResourceDiscovery {
			known, _ := lookup(snapshot, gv)
			return known.Resources
		},
		Proxy: proxy.Config{Pseudonym: "portico-gateway", Condition: string(adoption.BackendAvailable)},
	})
	return err
}

// documentView is the routing table as discovery and OpenAPI see it. The known documents of an unavailable server
// stay current: its resources still exist for the API server, and requests for them get a 503 with the cause.
var documentView = remote.View{RemoteOnly: true, KeepDead: true}

func (g *Gateway) storage(key string) lastknown.Storage {
	return lastknown.Storage{Client: g.client.CoreV1().ConfigMaps(g.cfg.Namespace), Key: key, Packed: key == lastknown.OpenAPI, Logger: g.log.Named("storage")}
}

// never returns a channel that is never closed: a gateway has no local groups.
func never() <-chan struct{} { return nil }

// wireFront builds the health checks, the router, the chain and the server.
func (g *Gateway) wireFront() error {
	g.health = server.NewHealth(g.log.Named("health"), g.checks()...)
	g.router = g.Router(server.NewStatic(server.StaticConfig{Health: g.health, Version: version.Get(), Gatherer: g.Registry, Aggregation: func() any { return nil }}))
	largeHeaders := server.NewHeaderMemory(g.Memory, func(s *tls.ConnectionState) bool { return g.trust.IsFrontProxy(s.PeerCertificates) })
	chain, err := server.NewChain(g.Chain(server.ChainConfig{
		LargeHeaders:  largeHeaders,
		Authenticator: frontProxies{g.trust.AuthenticateRequest}, Authorizer: passed{}, Ready: g.notReady, AdjustTimeout: endBeforeClient, AnyOrigin: true, GoawayInterval: goawayInterval,
	}), &handler{routes: g.APIServices.Table, discovery: g.Discovery.Current, router: g.router})
	if err != nil {
		return err
	}
	g.server = g.Server(server.Config{
		Listener: g.listener, TLS: pki.ServerConfig(g.keys.serving), MaxConcurrentStreams: maxConcurrentStreams,
		Handler: chain, Health: g.health, LargeHeaders: largeHeaders, Proxy: g.Proxy,
	})
	return nil
}

// endBeforeClient returns the timeout of a request that its client, an API server, ends after timeout.
func endBeforeClient(timeout time.Duration) time.Duration {
	return timeout - min(timeout/10, time.Second)
}

// goawayInterval is the minimum time between two connections that a gateway ends to spread them. Its clients are a
// few API servers with a few connections each, which must not reconnect more often than that, regardless of the rate
// of requests.
const goawayInterval = time.Minute

// maxConcurrentStreams limits the concurrent requests on a connection. Go's HTTP/2 client, which API servers use,
// opens a connection for each request beyond the limit, and closes most of them later. A higher limit makes that
// rare. net/http's server announces the same number.
const maxConcurrentStreams = 250

// checks returns the checks of /readyz. They do not depend on extension servers, and do not fail while the API server
// is unreachable: a gateway that was ready still serves requests.
func (g *Gateway) checks() []server.Check {
	return []server.Check{
		server.Closed("authentication", g.trust.Ready()),
		server.Closed("keys", g.keys.ready),
		server.Closed("apiservice-routes", g.APIServices.Ready()),
		server.Closed("discovery", g.Discovery.Ready()),
		server.Closed("openapi", g.OpenAPI.Ready()),
		{Name: "startup", Ask: func(context.Context) error { return server.NotClosed(g.server.Ready()) }},
	}
}

// notReady returns why requests cannot be served yet. The listener starts last.
func (g *Gateway) notReady() error { return server.NotClosed(g.Discovery.Ready()) }

func (g *Gateway) metricsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(g.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	return mux
}
