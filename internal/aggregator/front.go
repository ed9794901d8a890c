package aggregator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"runtime"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/component-base/metrics/legacyregistry"

	"portico.dev/internal/audit"
	"portico.dev/internal/fairness"
	"portico.dev/internal/filters"
	"portico.dev/internal/metrics"
	"portico.dev/internal/pki"
	"portico.dev/internal/replicas/cluster"
	"portico.dev/internal/replicas/peers"
	"portico.dev/internal/server"
	"portico.dev/internal/version"
)

// wireFront builds the listener, the chain, the router and the health checks.
func (h *parts) wireFront() error {
	c := h.cfg
	h.wireProfiling()
	h.debtCleaner = h.newDebtCleaner()
	h.health = server.NewHealth(h.log.Named("health"), h.checks()...)
	if err := h.wireBackup(); err != nil {
		return err
	}
	h.router = h.Router(server.NewStatic(server.StaticConfig{
		Health: h.health, Version: version.Get(),
		Gatherer:    prometheus.Gatherers{h.Registry, h.libraryMetrics()},
		Aggregation: func() any { return h.debugState() },
		Debts:       h.debtCleaner,
		Backup:      h.backups,
		Cluster:     h.clusterHandler(),
		JWKS:        h.tokens.JWKS,
		OpenIDConfiguration: func() []byte {
			return h.tokens.OpenIDConfiguration(h.url + "/openid/v1/jwks")
		},
		Profiling: c.Profiling,
		Handlers:  c.Embedded.Handlers,
	}))
	if err := h.wireControllers(); err != nil {
		return err
	}
	if err := h.wireAudit(); err != nil {
		return err
	}
	if err := h.wireFairness(); err != nil {
		return err
	}
	config := h.Chain(server.ChainConfig{
		Authenticator: inProcessAuthenticator{h.authn}, Authorizer: h.authz, Ready: h.notReady, Fairness: h.fairness,
		CORSAllowedOrigins: c.CORSAllowedOrigins, DeniedUserAgents: c.DeniedUserAgents,
		UpgradesNeedCreate: c.AuthorizeUpgradesAsCreate, StrictTransportSecurity: c.StrictTransportSecurity,
		LargeHeaders: server.NewHeaderMemory(h.Memory, h.mayHaveLargeHeaders),
	})
	if h.audit != nil {
		config.Audit = h.audit
	}
	if c.TracingEndpoint != "" {
		h.tracing = server.NewTracerProvider(server.TracingConfig{
			Endpoint: c.TracingEndpoint, SamplingRatePerMillion: c.TracingSamplingRatePerMillion,
			Service: "aggregator", Version: version.Portico, Dial: h.Egress.ControlPlane().Dialer(), Logger: h.log.Named("tracing"),
		})
		config.Tracer = h.tracing.Tracer()
	}
	if h.clusters != nil {
		config.ReservedExtra = filters.ClusterExtra
	}
	config.ShareSlowClients()
	chain, err := server.NewChain(config, h.router)
	if err != nil {
		return err
	}
	if chain, err = h.wireFleet(config, chain); err != nil {
		return err
	}
	h.chain = chain
	if h.listener == nil {
		return nil
	}
	certificate := h.servingCert.GetCertificate
	if h.peers != nil {
		certificate = h.peers.Certificate(certificate)
		chain = server.SplitPeers(server.NewPeerChain(config, h.peers, h.Metrics.Peers, h.router), chain, h.health)
	}
	if h.joins != nil {
		certificate = h.joins.Certificate(certificate)
		chain = server.SplitJoining(server.NewJoinChain(config, h.joins), chain)
	}
	offered := pki.ServerConfigFor(certificate)
	if err := pki.Restrict(offered, c.TLSMinVersion, c.TLSCipherSuites); err != nil {
		return err
	}
	h.server = h.Server(server.Config{
		Listener: h.listener, Hold: c.Embedded.HoldConnections, TLS: h.nameClientCAs(offered), Handler: chain, Health: h.health,
		LargeHeaders: config.LargeHeaders, Proxy: h.Proxy,
	})
	return nil
}

// nameClientCAs names the authorities of clients and front proxies in the handshake, as kube-apiserver does.
func (h *parts) nameClientCAs(c *tls.Config) *tls.Config {
	named := pki.JoinPools(h.clientCA, h.frontProxy)
	return pki.NameClientCAs(c, func(hello *tls.ClientHelloInfo) *x509.CertPool {
		if hello.ServerName == peers.ServerName || hello.ServerName == cluster.ServerName {
			return nil // client certificates for these server names have no CA
		}
		return named()
	})
}

// mayHaveLargeHeaders reports whether a connection is from a front proxy or another replica.
func (h *parts) mayHaveLargeHeaders(s *tls.ConnectionState) bool {
	if s.ServerName == peers.ServerName {
		return h.peers != nil && h.peers.IsReplica(s)
	}
	return h.authn.IsFrontProxy(s.PeerCertificates)
}

// wireAudit leaves h.audit nil if no audit backend is configured.
func (h *parts) wireAudit() (err error) {
	c := h.cfg.Audit
	if !c.Enabled() {
		return nil
	}
	c.Metrics, c.Logger, c.Dial = h.Metrics.Audit, h.log.Named("audit"), h.Egress.ControlPlane().NetDialer()
	h.audit, err = audit.New(c)
	return err
}

func (c *Config) addFairnessFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&c.EnablePriorityAndFairness, "enable-priority-and-fairness", c.EnablePriorityAndFairness, "limit concurrency by API Priority and Fairness; without it --max-requests-inflight and --max-mutating-requests-inflight are the limits")
	fs.IntVar(&c.MaxRequestsInFlight, "max-requests-inflight", c.MaxRequestsInFlight, "concurrency that priority levels share, together with --max-mutating-requests-inflight; without API Priority and Fairness, the limit of concurrent reads, negative for none")
	fs.IntVar(&c.MaxMutatingRequestsInFlight, "max-mutating-requests-inflight", c.MaxMutatingRequestsInFlight, "concurrency that priority levels share, together with --max-requests-inflight; without API Priority and Fairness, the limit of concurrent writes, negative for none")
}

func (c *Config) validateFairness(bad func(flag, format string, args ...any)) {
	if !c.EnablePriorityAndFairness {
		return
	}
	if c.MaxRequestsInFlight < 0 || c.MaxMutatingRequestsInFlight < 0 || c.seats() == 0 {
		bad("max-requests-inflight", "priority levels share %d and %d seats; give them at least one together, or say --enable-priority-and-fairness=false",
			c.MaxRequestsInFlight, c.MaxMutatingRequestsInFlight)
	}
}

// seats returns the concurrency that the priority levels share, as upstream does.
func (c *Config) seats() int { return c.MaxRequestsInFlight + c.MaxMutatingRequestsInFlight }

// wireFairness leaves h.fairness nil if fairness is off.
func (h *parts) wireFairness() (err error) {
	if !h.cfg.EnablePriorityAndFairness {
		return nil
	}
	h.fairness, err = fairness.New(fairness.Config{
		Client: h.bootstrapClients, Seats: h.cfg.seats(), Metrics: h.Metrics.Fairness, Logger: h.log.Named("fairness"),
		WithoutEtcd: func() bool { _, without := h.withoutEtcd(); return without },
	})
	return err
}

func (c *Config) addProfilingFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&c.Profiling, "profiling", c.Profiling, "serve profiles at /debug/pprof/ to users who are authorized for the path")
	fs.BoolVar(&c.ContentionProfiling, "contention-profiling", c.ContentionProfiling, "record blocking events for /debug/pprof/block; needs --profiling, and makes every wait slightly slower")
}

func (c *Config) addMetricsFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&c.AllMetrics, "all-metrics", c.AllMetrics, "serve all metrics of the Kubernetes libraries and of the Go runtime at /metrics, including experimental and unused ones")
}

// libraryMetrics returns the metrics of the Kubernetes libraries, which register them for the whole process.
func (h *parts) libraryMetrics() prometheus.Gatherer {
	if h.cfg.AllMetrics {
		return legacyregistry.DefaultGatherer
	}
	return metrics.Libraries(legacyregistry.DefaultGatherer)
}

// wireProfiling enables block profiling, for the whole process.
func (h *parts) wireProfiling() {
	if h.cfg.Profiling && h.cfg.ContentionProfiling {
		runtime.SetBlockProfileRate(1)
	}
}

// checks returns the checks of /readyz. /livez does not include them, because a restart would not help. Only the
// checks of --readyz-apiservices depend on extension servers.
func (h *parts) checks() []server.Check {
	return slices.Concat(h.storageChecks(), []server.Check{
		server.Closed("local-groups", h.core.Ready()),
		server.Closed("rbac", h.rbac.Ready()),
		server.Closed("apiservice-routes", h.APIServices.Ready()),
		server.Closed("discovery", h.Discovery.Ready()),
		{Name: "client-ca-file", Ask: func(context.Context) error { return h.clientCA.Stale() }},
		{Name: "authentication", Ask: func(context.Context) error { return errors.Join(h.authn.Stale(), h.issuers.Stale()) }},
		{Name: "authorization", Ask: func(context.Context) error { return h.authz.Stale() }},
		{Name: "requestheader-client-ca-file", Ask: func(context.Context) error { return h.frontProxy.Stale() }},
		{Name: "tls-cert-file", Ask: func(context.Context) error { return h.servingCert.Stale() }},
		{Name: "proxy-client-cert-file", Ask: func(context.Context) error { return h.proxyClientCert.Stale() }},
		{Name: "shared-keys", Ask: h.sharedKeys.Check},
		{Name: "startup", Ask: func(context.Context) error {
			if h.server == nil { // the embedding program waits for Ready
				return nil
			}
			return server.NotClosed(h.server.Ready())
		}},
	}, h.backendChecks())
}

// notReady returns why API requests cannot be served yet. The listener starts last, so notReady checks only the parts
// that may still be missing then.
func (h *parts) notReady() error {
	for _, ready := range []<-chan struct{}{h.core.Ready(), h.rbac.Ready()} {
		if err := server.NotClosed(ready); err != nil {
			return err
		}
	}
	return h.stateTooOld()
}
