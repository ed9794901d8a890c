package extserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/auth/delegated"
	"portico.dev/internal/extension"
	"portico.dev/internal/extension/hostmetrics"
	"portico.dev/internal/extension/metricsapi"
	"portico.dev/internal/extension/register"
	"portico.dev/internal/extension/servingcert"
	"portico.dev/internal/pki"
	"portico.dev/internal/run"
)

// Server is an extension server for the metrics of this machine.
type Server struct {
	options  Options
	caBundle []byte
	host     *extension.Host
	group    run.Group
	ready    chan struct{}
}

// New makes a server. It reads the certificate files that o names and does no other I/O.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{options: o, ready: make(chan struct{})}
	certificate, err := s.addCertificate()
	if err != nil {
		return nil, err
	}
	sampler, err := hostmetrics.New(hostmetrics.Config{ProcPath: o.ProcPath, Resolution: o.MetricResolution, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	labels, err := newNodeLabels(o.Client, o.NodeName, o.Logger)
	if err != nil {
		return nil, err
	}
	authn, authz, err := newTrust(o)
	if err != nil {
		return nil, err
	}
	resources := metricsapi.Nodes(nodeSource(o.NodeName, sampler, labels))
	s.host, err = extension.New(extension.Config{
		Resources:     resources,
		Authenticator: authn,
		Authorizer:    authz,
		ClientCAs:     authn.ClientCAs,
		BindAddress:   o.BindAddress,
		Port:          o.Port,
		Certificate:   certificate,
		Live:          []extension.Check{{Name: "metric-collection-timely", Check: sampler.Timely}},
		Ready: []extension.Check{
			{Name: "metric-storage-ready", Check: sampler.Stored},
			{Name: "extension-apiserver-authentication", Check: func(context.Context) error { return authn.Stale() }},
		},
		MaxRequestsInFlight: o.MaxRequestsInFlight,
		RequestTimeout:      o.RequestTimeout,
		ShutdownDelay:       o.ShutdownDelay,
		Profiling:           o.Profiling,
		Logger:              o.Logger,
		AccessLog:           o.AccessLog,
	})
	if err != nil {
		return nil, err
	}
	s.group.Add(run.Member{Name: "host metrics", Run: sampler.Run})
	s.group.Add(run.Member{Name: "node labels", Run: labels.Run})
	s.group.Add(run.Member{Name: "trust", Run: authn.Run, Ready: authn.Ready()})
	s.group.Add(run.Member{Name: "extension server", Run: s.host.Run, Ready: s.host.Ready()})
	return s, s.addRegistration(resources)
}

// addCertificate chooses the serving certificate: the given files, or one made by itself.
func (s *Server) addCertificate() (*pki.KeyPair, error) {
	o := s.options
	if o.CertFile == "" {
		own, err := servingcert.New(servingcert.Config{Names: o.names(), IPs: o.addresses(), Logger: o.Logger})
		if err != nil {
			return nil, err
		}
		s.caBundle = own.CABundle()
		s.group.Add(run.Member{Name: "serving certificate", Run: own.Run})
		return own.KeyPair(), nil
	}
	pair, err := pki.LoadKeyPair(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, err
	}
	caFile := o.CAFile
	if caFile == "" {
		caFile = o.CertFile
	}
	if s.caBundle, err = os.ReadFile(caFile); err != nil {
		return nil, fmt.Errorf("CA bundle: %w", err)
	}
	s.group.Add(run.Member{Name: "serving certificate", Run: func(ctx context.Context) error { return pair.Run(ctx, o.Logger) }})
	return pair, nil
}

// newTrust makes the two who vouch for callers. They are one when one kubeconfig serves both questions.
func newTrust(o Options) (authn, authz *delegated.Delegated, err error) {
	config := delegated.Config{
		Client:            o.AuthenticationClient,
		AnonymousAllowed:  o.AnonymousAuth,
		AlwaysAllowPaths:  o.AlwaysAllowPaths,
		AlwaysAllowGroups: o.AlwaysAllowGroups,
		Logger:            o.Logger,
	}
	authn, err = delegated.New(config)
	if err != nil || o.AuthorizationClient == o.AuthenticationClient {
		return authn, authn, err
	}
	config.Client = o.AuthorizationClient
	authz, err = delegated.New(config)
	return authn, authz, err
}

// addRegistration makes registering the last thing that happens at the start: a front door must find the server well.
func (s *Server) addRegistration(resources []extension.Resource) error {
	if s.options.Register {
		keeper, err := register.New(register.Config{
			Client:       s.options.Client,
			Registration: func() register.Registration { return s.registration(resources) },
			Logger:       s.options.Logger,
		})
		if err != nil {
			return err
		}
		s.group.Add(run.Member{Name: "registration", Run: keeper.Run, Ready: keeper.Ready()})
	}
	s.group.Add(run.Member{Name: "readiness", Run: func(ctx context.Context) error {
		close(s.ready)
		<-ctx.Done()
		return nil
	}})
	return nil
}

func (s *Server) registration(resources []extension.Resource) register.Registration {
	_, port, _ := net.SplitHostPort(s.Address())
	number, _ := strconv.Atoi(port) // zero is refused as a port
	return register.Registration{
		Namespace: s.options.ServiceNamespace, Service: s.options.ServiceName, ExternalName: s.options.ExternalName,
		Addresses: s.options.AdvertiseAddresses, Port: number, CABundle: s.caBundle, GroupVersions: groupVersions(resources),
	}
}

func groupVersions(resources []extension.Resource) []schema.GroupVersion {
	var out []schema.GroupVersion
	for _, r := range resources {
		out = append(out, r.GroupVersion())
	}
	return out
}

// Run serves until ctx ends, and returns after everything has stopped.
func (s *Server) Run(ctx context.Context) error {
	s.options.Logger.Info("starting", zap.String("node", s.options.NodeName))
	return s.group.Run(ctx)
}

// Ready is closed when the server serves and, if it registers itself, is registered.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Address is host:port of the listener, empty before it listens.
func (s *Server) Address() string { return s.host.Address() }

// CABundle is what the serving certificate chains to.
func (s *Server) CABundle() []byte { return s.caBundle }

func nodeSource(name string, sampler *hostmetrics.Sampler, labels *nodeLabels) metricsapi.Source {
	return func(context.Context) ([]metricsapi.NodeUsage, error) {
		u, ok := sampler.Latest()
		if !ok {
			return nil, nil
		}
		return []metricsapi.NodeUsage{{
			Name: name, Labels: labels.Get(),
			Cores: u.Cores, WorkingSet: u.WorkingSet, Timestamp: u.Timestamp, Window: u.Window,
		}}, nil
	}
}
