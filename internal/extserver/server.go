package extserver

import (
	"context"
	"errors"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"portico.dev/internal/extserver/registration"
	"portico.dev/pkg/extension"
)

// Server is an extension server for the resources in its options.
type Server struct {
	*extension.Server
	options Options
	parts   parts
}

// New returns a Server. It reads the files that o names, and creates a missing serving certificate in Options.CertDir if that
// is set. It does no other I/O.
func New(o Options) (*Server, error) {
	if o.Client == nil && o.Kubeconfig == "" {
		return nil, errors.New("a kubeconfig is required: it says which front door vouches for callers")
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{options: o}
	if s.parts, err = o.parts(s.changed); err != nil {
		return nil, err
	}
	if len(s.parts) == 0 {
		return nil, errors.New("nothing to host: --metrics-source is none; give --resources, --custom-metrics-rules or --projects")
	}
	c := o.Options
	c.Sources, c.Needs = s.parts.sources, s.parts.needs()
	for _, p := range s.parts {
		c.Live, c.Ready = append(c.Live, p.live...), append(c.Ready, p.ready...)
		for _, m := range p.members {
			c.Background = append(c.Background, extension.Background{Name: m.Name, Run: m.Run})
		}
	}
	s.Server, err = extension.NewServer(c, s.parts.resources()...)
	return s, err
}

// changed updates the hosted resources. It must not be called before New has returned.
func (s *Server) changed([]extension.Resource) error { return s.SetResources(s.parts.resources()) }

// Manifests returns the objects that an administrator applies for a server with options o: the ones that the server needs and
// the ones that it would write itself. It sends no requests.
func Manifests(o Options) ([]registration.Manifest, error) {
	return o.planned(extension.Manifests)
}

// Rights returns the part of Manifests that the server cannot write itself: its identity, its permissions, and a role of
// readers.
func Rights(o Options) ([]registration.Manifest, error) { return o.planned(extension.Rights) }

// planned calls make for a server with options o.
func (o Options) planned(make func(extension.Options, ...extension.Resource) ([]extension.Manifest, error)) ([]registration.Manifest, error) {
	if o.Client == nil {
		o.Client = &rest.Config{Host: "https://front-door.invalid"}
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	p, err := o.parts(nil)
	if err != nil {
		return nil, err
	}
	c := o.Options
	c.Needs = p.needs()
	return make(c, p.resources()...)
}

// Run serves until ctx ends, and returns after all parts have stopped.
func (s *Server) Run(ctx context.Context) error {
	s.options.Logger.Info("starting", zap.String("node", s.options.NodeName))
	return s.Server.Run(ctx)
}
