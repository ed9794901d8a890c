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
	"portico.dev/internal/extserver/registration"
	"portico.dev/internal/logging"
	"portico.dev/internal/pki"
	"portico.dev/internal/run"
)

// Serve calls NewServer and Run. It serves resources until ctx ends.
func Serve(ctx context.Context, o Options, resources ...Resource) error {
	server, err := NewServer(o, resources...)
	if err != nil {
		return err
	}
	return server.Run(ctx)
}

// Server is a complete extension server: a Host that delegates authentication and authorization to the front door, a serving
// certificate, and the registration of its APIServices. Its methods may be called concurrently.
type Server struct {
	options     Options
	certificate *registration.Certificate // nil if the certificate was supplied
	given       []byte                    // caBundle of a supplied certificate
	host        *Host
	registrar   *registration.Registrar // nil if the server does not register itself
	group       run.Group
	ready       chan struct{}

	mu        sync.Mutex // guards resources
	resources []Resource
}

// NewServer returns a Server. It reads the files that o names, and creates a missing serving certificate in Options.CertDir
// if that is set. It does no other I/O.
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
	if o.AccessLog && o.AccessLogPath != "" {
		log, err := logging.OpenAccessLog(logging.File{Path: o.AccessLogPath, MaxBackups: accessLogBackups}, o.Logger)
		if err != nil {
			return nil, err
		}
		c.AccessLogger = log.Logger()
		s.group.Add(run.Member{Name: "access log", Run: log.Run})
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

// SetResources replaces the hosted and registered resources. It may be called while the server runs; see Host.SetResources.
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

// accessLogBackups is the number of rotated files of the access log, so that it cannot fill a disk.
const accessLogBackups = 10

// unattendedTTL is the lifetime of an authority if the server does not register itself, because a replaced one would need a
// manual registration.
const unattendedTTL = 10 * 365 * 24 * time.Hour

// addCertificate sets up the serving certificate: the supplied files, or a generated one. It returns nil without a listener.
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

// newTrust returns the authenticator and the authorizer. They are the same object if they use the same client.
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

// addRegistration adds the registration as the last member of the group, because the front door must find the server ready.
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
		r.Port, _ = strconv.Atoi(port) // Validate rejects port zero
	}
	r.CABundle = s.CABundle()
	return r
}

// registration returns the registration without the caBundle and without the port of a listener.
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

// readable returns the resources for the role of readers.
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

// Rule is a permission that the server needs: verbs on resources of API groups, optionally restricted to the objects in
// Names.
type Rule = registration.Rule

// Manifest is one object for an administrator to apply, in its JSON form.
type Manifest = registration.Manifest

// YAML encodes manifests as a multi-document YAML file.
func YAML(manifests []Manifest) ([]byte, error) { return registration.YAML(manifests) }

// Manifests returns the objects that an administrator applies for a server with options o: the ones that the server needs and
// the ones that it would write itself. It sends no requests, and o needs no Client. Without Options.CAFile, the APIServices
// have no caBundle.
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

// Rights returns the part of Manifests that the server cannot write itself: its identity, its permissions, and a role of
// readers.
func Rights(o Options, resources ...Resource) ([]Manifest, error) {
	r, err := o.planned(resources)
	if err != nil {
		return nil, err
	}
	return r.RBAC(), nil
}

// planned returns the registration of a server with options o.
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

// Run serves until ctx ends, and returns after all parts have stopped. It must be called at most once.
func (s *Server) Run(ctx context.Context) error {
	err := s.group.Run(ctx)
	var refused *registration.RefusedError
	if errors.As(err, &refused) {
		// Log the manifests, which an administrator needs to fix this.
		if text, textErr := registration.YAML(refused.Objects); textErr == nil {
			s.options.Logger.Error("registration forbidden; an administrator can apply the manifests", zap.ByteString("manifests", text))
		}
	}
	return err
}

// Ready returns a channel that is closed when the server serves and, with Options.Register, is registered.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Address returns the host:port of the listener, or an empty string before it listens and without a listener.
func (s *Server) Address() string { return s.host.Address() }

// Handler returns the handler of the listener; see Host.Handler.
func (s *Server) Handler() http.Handler { return s.host.Handler() }

// CABundle returns the current CA certificates of the serving certificate.
func (s *Server) CABundle() []byte {
	if s.certificate != nil {
		return s.certificate.CABundle()
	}
	return s.given
}
