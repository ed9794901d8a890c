package front

import (
	"context"
	"errors"
	"net"
	"net/http"

	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"

	"portico.dev/internal/aggregation"
	"portico.dev/internal/fleet/cluster"
	"portico.dev/internal/pki"
	"portico.dev/internal/proxy"
	"portico.dev/internal/run"
	"portico.dev/internal/server"
	"portico.dev/internal/transport"
	"portico.dev/internal/version"
)

// Front contains every part, built but not started.
type Front struct {
	cfg Config
	log *zap.Logger
	*aggregation.Base

	listener net.Listener
	keys     *keys
	cluster  *cluster.Cluster
	server   *server.Server
}

// New builds a front and binds its port. It does not connect to the API server.
func New(c Config, log *zap.Logger) (*Front, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	f := &Front{cfg: c, log: log}
	var err error
	if f.Base, err = aggregation.NewBase(c.Serving, log); err != nil {
		return nil, err
	}
	if f.keys, err = newKeys(c.BindAddress); err != nil {
		return nil, err
	}
	if f.listener, err = c.Listen(); err != nil {
		return nil, err
	}
	if err := f.wire(); err != nil {
		return nil, errors.Join(err, f.listener.Close())
	}
	return f, nil
}

func (f *Front) wire() (err error) {
	forward := proxy.New(proxy.Config{
		Lists: f.Bodies.ForLists(), Requests: f.Metrics.Requests, Logger: f.log.Named("proxy"),
	})
	config, err := cluster.FromKubeconfig(f.cfg.Client)
	if err != nil {
		return err
	}
	config.Proxy, config.Logger = forward, f.log.Named("cluster")
	config.Transport = transport.Options{
		Engine: f.cfg.BackendEngine, OwnAddresses: func() []string { return []string{f.listener.Addr().String()} },
		Metrics: f.Metrics.Backends, Logger: f.log.Named("transport"), Tunnel: config.Transport.Tunnel,
	}
	if f.cluster, err = cluster.New(config); err != nil {
		return err
	}
	health := server.NewHealth(f.log.Named("health"), server.Check{Name: "startup", Ask: func(context.Context) error { return server.NotClosed(f.server.Ready()) }})
	// The API server decides about all requests and about impersonation.
	chain, err := server.NewChain(f.Chain(server.ChainConfig{
		Authenticator: authenticator.RequestFunc(f.authenticate), Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer(), PassImpersonation: true,
		AdjustTimeout: cluster.EndAfterServer, Ready: func() error { return nil },
	}), f.route(server.NewStatic(server.StaticConfig{
		Health: health, Version: version.Get(), Gatherer: f.Registry, Aggregation: func() any { return nil },
	})))
	if err != nil {
		return err
	}
	f.server = f.Server(server.Config{
		Listener: f.listener, TLS: pki.MutualServerConfig(f.keys.serving, f.keys.clients.Pool()), Handler: chain, Health: health, Proxy: forward,
	})
	return nil
}

// ownPrefix is the prefix of the paths that describe the front. All other paths are the cluster's, as without the front.
const ownPrefix = "/portico"

// route returns the handler of all paths.
func (f *Front) route(own http.Handler) http.Handler {
	own = http.StripPrefix(ownPrefix, own)
	mux := http.NewServeMux()
	for _, path := range []string{"/readyz", "/livez", "/healthz", "/metrics"} {
		mux.Handle(ownPrefix+path, own)
		mux.Handle(ownPrefix+path+"/", own)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h, pattern := mux.Handler(r); pattern != "" {
			h.ServeHTTP(w, r)
			return
		}
		f.cluster.Serve(w, server.RequestFrom(r))
	})
}

// authenticate returns the user of a connection, which TLS has authenticated.
func (f *Front) authenticate(r *http.Request) (*authenticator.Response, bool, error) {
	r.Header.Del("Authorization") // no credential but the front's reaches the API server
	return &authenticator.Response{User: &user.DefaultInfo{Name: f.keys.user}}, true, nil
}

// URL returns the address of the front.
func (f *Front) URL() string { return "https://" + f.listener.Addr().String() }

// Target returns the address of the API server.
func (f *Front) Target() string { return f.cluster.URL() }

// Kubeconfig returns a kubeconfig for the front, with a default namespace.
func (f *Front) Kubeconfig(namespace string) ([]byte, error) {
	return f.keys.kubeconfig(f.URL(), namespace)
}

// Ready returns a channel that is closed when requests are served.
func (f *Front) Ready() <-chan struct{} { return f.server.Ready() }

// Run serves until ctx ends. The API server may be unreachable at any time.
func (f *Front) Run(ctx context.Context) error {
	group := &run.Group{}
	group.Add(run.Member{Name: "port", Ready: f.server.Accepts(), Run: f.server.Accept})
	group.Add(run.Member{Name: "cluster", Ready: f.cluster.Fetched(), Run: f.cluster.Run})
	if f.Overload != nil {
		group.Add(run.Member{Name: "overload", Run: f.Overload.Run})
	}
	group.Add(run.Member{Name: "listener", Ready: f.server.Ready(), Run: f.server.Run})
	return group.Run(ctx)
}
