package extension

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"portico.dev/internal/auth/delegated"
	"portico.dev/internal/pki"
	"portico.dev/internal/registration"
	"portico.dev/internal/run"
)

// Serve is NewServer and Run: it serves resources until ctx ends.
func Serve(ctx context.Context, o Options, resources ...Resource) error {
	server, err := NewServer(o, resources...)
	if err != nil {
		return err
	}
	return server.Run(ctx)
}

// Server is a whole extension server: a Host, with users that the front door authenticates and authorizes, a serving certificate, and
// the registration of its APIServices. Its methods can be called from any goroutine.
type Server struct {
	options     Options
	certificate *registration.Certificate // nil: it was given one
	given       []byte                    // the caBundle of a certificate that was given
	host        *Host
	registrar   *registration.Registrar // nil: somebody else registers it
	group       run.Group
	ready       chan struct{}

	mu        sync.Mutex // guards resources
	resources []Resource
}

// NewServer makes a server. It reads the files that o names and does no other I/O.
func NewServer(o Options, resources ...Resource) (*Server, error) {
	o, err := o.withDefaults(resources)
	if err != nil {
		return nil, err
	}
	s := &Server{options: o, ready: make(chan struct{}), resources: resources}
	pair, err := s.addCertificate()
	if err != nil {
		return nil, err
	}
	authn, authz, err := newTrust(o)
	if err != nil {
		return nil, err
	}
	c := Config{
		Resources:     resources,
		Sources:       o.Sources,
		Authenticator: authn,
		Authorizer:    authz,
		ClientCAs:     authn.ClientCAs,
		BindAddress:   o.BindAddress,
		Port:          o.Port,
		NoListener:    o.NoListener,
		Live:          o.Live,
		Ready: append([]Check{
			{Name: "extension-apiserver-authentication", Check: func(context.Context) error { return authn.Stale() }},
		}, o.Ready...),
		MaxRequestsInFlight: o.MaxRequestsInFlight,
		RequestTimeout:      o.RequestTimeout,
		ShutdownDelay:       o.ShutdownDelay,
		Profiling:           o.Profiling,
		Logger:              o.Logger,
		AccessLog:           o.AccessLog,
	}
	if pair != nil {
		c.GetCertificate = pair.GetCertificate
	}
	switch o.AuditLogPath {
	case "":
	case "-":
		c.AuditLog = os.Stdout
	default:
		log := newAuditFile(o.AuditLogPath)
		c.AuditLog = log
		s.group.Add(run.Member{Name: "audit log", Run: log.run, Ready: log.done})
	}
	if s.host, err = New(c); err != nil {
		return nil, err
	}
	for _, b := range o.Background {
		s.add(b.Name, b.Run)
	}
	s.group.Add(run.Member{Name: "trust", Run: authn.Run, Ready: authn.Ready()})
	s.group.Add(run.Member{Name: "extension server", Run: s.host.Run, Ready: s.host.Ready()})
	return s, s.addRegistration()
}

func (s *Server) add(name string, f func(context.Context) error) {
	s.group.Add(run.Member{Name: name, Run: f})
}

// SetResources makes resources what is hosted and registered, also while the server runs; see Host.SetResources.
func (s *Server) SetResources(resources []Resource) error {
	if err := s.host.SetResources(resources); err != nil {
		return err
	}
	s.mu.Lock()
	s.resources = resources
	s.mu.Unlock()
	if s.registrar != nil {
		s.registrar.Trigger()
	}
	return nil
}

// unattendedTTL is the life of an authority that nobody registers again by itself.
const unattendedTTL = 10 * 365 * 24 * time.Hour

// addCertificate chooses the serving certificate: the given files, or one made by itself. It returns nil if there is no listener.
func (s *Server) addCertificate() (*pki.KeyPair, error) {
	o := s.options
	if o.NoListener {
		if o.CAFile == "" {
			return nil, nil
		}
		var err error
		if s.given, err = os.ReadFile(o.CAFile); err != nil {
			return nil, fmt.Errorf("CA bundle: %w", err)
		}
		return nil, nil
	}
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
		s.add("serving certificate", own.Run)
		return own.KeyPair(), nil
	}
	pair, err := pki.LoadKeyPair(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, err
	}
	if s.given, err = os.ReadFile(cmp.Or(o.CAFile, o.CertFile)); err != nil {
		return nil, fmt.Errorf("CA bundle: %w", err)
	}
	s.add("serving certificate", func(ctx context.Context) error { return pair.Run(ctx, o.Logger) })
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
	s.add("readiness", func(ctx context.Context) error {
		close(s.ready)
		if s.options.WhenReady != nil {
			s.options.WhenReady()
		}
		<-ctx.Done()
		return nil
	})
	return nil
}

func (s *Server) registration() registration.Registration {
	s.mu.Lock()
	r := s.options.registration(s.resources)
	s.mu.Unlock()
	if _, port, err := net.SplitHostPort(s.Address()); err == nil {
		r.Port, _ = strconv.Atoi(port) // zero is refused as a port
	}
	r.CABundle = s.CABundle()
	return r
}

// registration is everything but the caBundle, and the port of a listener.
func (o Options) registration(resources []Resource) registration.Registration {
	r := registration.Registration{
		Namespace: o.ServiceNamespace, Service: o.ServiceName, ExternalName: o.ExternalName, Addresses: o.AdvertiseAddresses,
		Selector: o.ServiceSelector, Port: o.Port, Readable: readable(resources), Needs: o.Needs, MayCreate: o.CreateRegistration,
	}
	for _, hosted := range resources {
		r.GroupVersions = append(r.GroupVersions, hosted.GroupVersion())
	}
	return r
}

// readable is what a role of readers allows.
func readable(resources []Resource) []registration.Resources {
	var all []registration.Resources
	for _, r := range resources {
		group, name := r.GroupVersion().Group, r.GroupVersionResource().Resource
		name = cmp.Or(name, "*")
		i := slices.IndexFunc(all, func(g registration.Resources) bool { return g.Group == group })
		if i < 0 {
			all = append(all, registration.Resources{Group: group})
			i = len(all) - 1
		}
		if !slices.Contains(all[i].Names, name) {
			all[i].Names = append(all[i].Names, name)
		}
	}
	return all
}

// Rule is what a server needs to be allowed: verbs on resources of groups, or on those of them that Names lists.
type Rule = registration.Rule

// Manifest is one object for an administrator to apply, as it is encoded in JSON.
type Manifest = registration.Manifest

// YAML encodes manifests as documents of one file.
func YAML(manifests []Manifest) ([]byte, error) { return registration.YAML(manifests) }

// Manifests are what an administrator applies for a server with options o: what it needs, and what it would write itself. No server
// is asked, and o needs no Client. Without Options.CAFile the APIServices have no caBundle.
func Manifests(o Options, resources ...Resource) ([]Manifest, error) {
	r, err := o.planned(resources)
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
func Rights(o Options, resources ...Resource) ([]Manifest, error) {
	r, err := o.planned(resources)
	if err != nil {
		return nil, err
	}
	return r.RBAC(), nil
}

// planned is what a server with options o would register.
func (o Options) planned(resources []Resource) (registration.Registration, error) {
	if o.Client == nil && o.Kubeconfig == "" {
		o.Client = &rest.Config{Host: "https://front-door.invalid"}
	}
	o, err := o.withDefaults(resources)
	if err != nil {
		return registration.Registration{}, err
	}
	return o.registration(resources), nil
}

// Run serves until ctx ends, and returns after everything has stopped. It can be called once.
func (s *Server) Run(ctx context.Context) error {
	err := s.group.Run(ctx)
	var refused *registration.RefusedError
	if errors.As(err, &refused) {
		// Whoever reads this has to ask an administrator, who needs exactly that.
		if text, textErr := registration.YAML(refused.Objects); textErr == nil {
			s.options.Logger.Error("the registration is refused; an administrator can apply it", zap.ByteString("manifests", text))
		}
	}
	return err
}

// Ready is closed when the server serves and, if it registers itself, is registered.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Address is host:port of the listener, empty before it listens and without one.
func (s *Server) Address() string { return s.host.Address() }

// Handler serves requests as the listener does; see Host.Handler.
func (s *Server) Handler() http.Handler { return s.host.Handler() }

// CABundle is what the serving certificate chains to, now.
func (s *Server) CABundle() []byte {
	if s.certificate != nil {
		return s.certificate.CABundle()
	}
	return s.given
}
