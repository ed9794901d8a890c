package extserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"portico.dev/internal/auth/delegated"
	"portico.dev/internal/extension"
	"portico.dev/internal/extension/registration"
	"portico.dev/internal/pki"
	"portico.dev/internal/run"
)

// Server is an extension server for what its options name.
type Server struct {
	options     Options
	certificate *registration.Certificate // nil: it was given one
	given       []byte                    // the caBundle of a certificate that was given
	parts       parts
	host        *extension.Host
	registrar   *registration.Registrar // nil: somebody else registers it
	group       run.Group
	ready       chan struct{}
}

// New makes a server. It reads the files that o names and does no other I/O.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{options: o, ready: make(chan struct{})}
	pair, err := s.addCertificate()
	if err != nil {
		return nil, err
	}
	if s.parts, err = o.parts(s.changed); err != nil {
		return nil, err
	}
	if len(s.parts) == 0 {
		return nil, errors.New("nothing to host: --metrics-source is none; give --resources, --custom-metrics-rules or --projects")
	}
	authn, authz, err := newTrust(o)
	if err != nil {
		return nil, err
	}
	c := extension.Config{
		Resources:     s.parts.resources(),
		Sources:       s.parts.sources,
		Authenticator: authn,
		Authorizer:    authz,
		ClientCAs:     authn.ClientCAs,
		BindAddress:   o.BindAddress,
		Port:          o.Port,
		Certificate:   pair,
		Ready: []extension.Check{
			{Name: "extension-apiserver-authentication", Check: func(context.Context) error { return authn.Stale() }},
		},
		MaxRequestsInFlight: o.MaxRequestsInFlight,
		RequestTimeout:      o.RequestTimeout,
		ShutdownDelay:       o.ShutdownDelay,
		Profiling:           o.Profiling,
		Logger:              o.Logger,
		AccessLog:           o.AccessLog,
	}
	for _, p := range s.parts {
		c.Live, c.Ready = append(c.Live, p.live...), append(c.Ready, p.ready...)
	}
	if s.host, err = extension.New(c); err != nil {
		return nil, err
	}
	for _, p := range s.parts {
		for _, m := range p.members {
			s.group.Add(m)
		}
	}
	s.group.Add(run.Member{Name: "trust", Run: authn.Run, Ready: authn.Ready()})
	s.group.Add(run.Member{Name: "extension server", Run: s.host.Run, Ready: s.host.Ready()})
	return s, s.addRegistration()
}

// changed hosts what is declared by now. Whoever calls it runs after New.
func (s *Server) changed([]extension.Resource) error {
	if err := s.host.SetResources(s.parts.resources()); err != nil {
		return err
	}
	if s.registrar != nil {
		s.registrar.Trigger()
	}
	return nil
}

// unattendedTTL is the life of an authority that nobody registers again by itself.
const unattendedTTL = 10 * 365 * 24 * time.Hour

// addCertificate chooses the serving certificate: the given files, or one made by itself.
func (s *Server) addCertificate() (*pki.KeyPair, error) {
	o := s.options
	if o.CertFile == "" {
		c := registration.CertificateConfig{Names: o.names(), IPs: o.addresses(), Dir: o.CertDir, Overlap: o.CAOverlap, Logger: o.Logger}
		if !o.Register {
			c.AuthorityTTL = unattendedTTL
		}
		own, err := registration.NewCertificate(c)
		if err != nil {
			return nil, err
		}
		s.certificate = own
		s.group.Add(member("serving certificate", own.Run))
		return own.KeyPair(), nil
	}
	pair, err := pki.LoadKeyPair(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, err
	}
	if s.given, err = os.ReadFile(cmp.Or(o.CAFile, o.CertFile)); err != nil {
		return nil, fmt.Errorf("CA bundle: %w", err)
	}
	s.group.Add(member("serving certificate", func(ctx context.Context) error { return pair.Run(ctx, o.Logger) }))
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
func (s *Server) addRegistration() error {
	if s.options.Register {
		c := registration.RegistrarConfig{Client: s.options.Client, Registration: s.registration, Logger: s.options.Logger}
		if s.certificate != nil {
			c.Certificate = s.certificate
		}
		registrar, err := registration.NewRegistrar(c)
		if err != nil {
			return err
		}
		s.registrar = registrar
		s.group.Add(run.Member{Name: "registration", Run: registrar.Run, Ready: registrar.Ready()})
	}
	s.group.Add(member("readiness", func(ctx context.Context) error {
		close(s.ready)
		if s.options.WhenReady != nil {
			s.options.WhenReady()
		}
		<-ctx.Done()
		return nil
	}))
	return nil
}

func (s *Server) registration() registration.Registration {
	r := s.options.registration(s.parts)
	_, port, _ := net.SplitHostPort(s.Address())
	r.Port, _ = strconv.Atoi(port) // zero is refused as a port
	r.CABundle = s.CABundle()
	return r
}

// registration is everything but the port and the caBundle.
func (o Options) registration(p parts) registration.Registration {
	r := registration.Registration{
		Namespace: o.ServiceNamespace, Service: o.ServiceName, ExternalName: o.ExternalName, Addresses: o.AdvertiseAddresses,
		Selector: o.ServiceSelector, Port: o.Port, Readable: p.readable(), Needs: p.needs(), MayCreate: o.CreateRegistration,
	}
	for _, hosted := range p.resources() {
		r.GroupVersions = append(r.GroupVersions, hosted.GroupVersion())
	}
	return r
}

// Manifests are what an administrator applies for a server with options o: what it needs, and what it would write itself.
// No server is asked.
func Manifests(o Options) ([]registration.Manifest, error) {
	r, err := o.planned()
	if err != nil {
		return nil, err
	}
	if o.CAFile != "" {
		if r.CABundle, err = os.ReadFile(o.CAFile); err != nil {
			return nil, fmt.Errorf("--tls-ca-file: %w", err)
		}
	}
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return r.All(), nil
}

// Rights are the part of Manifests that the server cannot write itself: its identity, its rights, and a role of readers.
func Rights(o Options) ([]registration.Manifest, error) {
	r, err := o.planned()
	if err != nil {
		return nil, err
	}
	return r.RBAC(), nil
}

// planned is what a server with options o would register.
func (o Options) planned() (registration.Registration, error) {
	if o.Client == nil {
		o.Client = &rest.Config{Host: "https://front-door.invalid"}
	}
	o, err := o.withDefaults()
	if err != nil {
		return registration.Registration{}, err
	}
	p, err := o.parts(nil)
	if err != nil {
		return registration.Registration{}, err
	}
	return o.registration(p), nil
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

// CABundle is what the serving certificate chains to, now.
func (s *Server) CABundle() []byte {
	if s.certificate != nil {
		return s.certificate.CABundle()
	}
	return s.given
}
