package coreapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"portico.dev/internal/clients"
	"portico.dev/internal/coreapi/admission"
	"portico.dev/internal/coreapi/admission/plugins"
	"portico.dev/internal/coreapi/registry"
)

// newAdmission returns the admission chain for every create, update and delete. The chain starts its informers, which read from
// the installed storages.
func (s *Server) newAdmission(all *storages) (*admission.Chain, error) {
	config := s.cfg.Admission
	if len(config.Plugins) == 0 {
		config = admission.Config{Plugins: plugins.NamespaceLifecycle()}
	}
	self := &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
	inside := inProcessConfig(asUser(self, s.withOpenAPI(s.handlerOf(&s.installed)), noWait))
	client, err := clients.New(inside)
	if err != nil {
		return nil, fmt.Errorf("client of admission: %w", err)
	}
	parameters, err := dynamic.NewForConfig(inside)
	if err != nil {
		return nil, fmt.Errorf("client of policy parameters: %w", err)
	}
	namespace := currentNamespace(all.namespaces)
	informers := clients.NewInformers(client, withoutManagers)
	return admission.New(config, admission.Deps{
		Client: client, Informers: informers, LibraryClient: clients.ForLibrary(client), LibraryInformers: informers.ForLibrary(),
		Dynamic:    parameters,
		Served:     all.resources().Has,
		Authorizer: s.cfg.Authorizer,
		RESTMapper: s.mapper(),
		Namespace:  namespace, NamespaceOfCreate: namespaceOfCreate(namespace),
		Webhooks: s.cfg.Webhooks,
		Logger:   s.log.Named("admission"),
	})
}

// withoutManagers drops managedFields, which no reader of the informers uses.
func withoutManagers(obj any) (any, error) {
	if accessor, err := meta.Accessor(obj); err == nil {
		accessor.SetManagedFields(nil)
	}
	return obj, nil
}

// BootstrapConfig returns a ClientConfig for objects that the server creates at startup, before any webhook can be reachable:
// webhooks and policies are not called.
func (s *Server) BootstrapConfig(u user.Info) *rest.Config {
	served := s.Handler()
	return inProcessConfig(asUser(u, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.ServeHTTP(w, r.WithContext(admission.WithBootstrap(r.Context())))
	}), s.awaitReady))
}

// mapper returns the RESTMapper of Config, which also contains the kinds of backends, or else a mapper of local resources.
func (s *Server) mapper() admission.MapperFunc {
	own := &ownMapper{now: s.served.Load}
	return func() meta.RESTMapper {
		if s.cfg.RESTMapper != nil {
			if m := s.cfg.RESTMapper(); m != nil {
				return m
			}
		}
		return own.mapper()
	}
}

// ownMapper maps the resources served here. It rebuilds its RESTMapper when they change.
type ownMapper struct {
	now func() *served

	mu   sync.Mutex // guards from and made
	from *served
	made meta.RESTMapper
}

func (m *ownMapper) mapper() meta.RESTMapper {
	served := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.from != served {
		m.from, m.made = served, mapperOf(served.discovery)
	}
	return m.made
}

func mapperOf(d Discovery) meta.RESTMapper {
	made := meta.NewDefaultRESTMapper(nil)
	add := func(group string, v apidiscoveryv2.APIVersionDiscovery) {
		gv := schema.GroupVersion{Group: group, Version: v.Version}
		for _, r := range v.Resources {
			if r.ResponseKind == nil || r.ResponseKind.Kind == "" {
				continue // only the parent of subresources
			}
			scope := meta.RESTScopeRoot
			if r.Scope == apidiscoveryv2.ScopeNamespace {
				scope = meta.RESTScopeNamespace
			}
			made.AddSpecific(gv.WithKind(r.ResponseKind.Kind), gv.WithResource(r.Resource), gv.WithResource(r.SingularResource), scope)
		}
	}
	for _, g := range slices.Concat(d.Core, d.Groups) {
		for _, v := range g.Versions {
			add(g.Name, v)
		}
	}
	return made
}

// A namespaceGetter returns the current state of a namespace.
type namespaceGetter func(ctx context.Context, name string) (*corev1.Namespace, error)

// currentNamespace reads through the storage of namespaces. It creates a separate context, because the context of the request
// names a different resource and namespace.
func currentNamespace(namespaces *registry.REST) namespaceGetter {
	return func(ctx context.Context, name string) (*corev1.Namespace, error) {
		obj, err := namespaces.Get(registry.ReadContext(ctx, "", "namespaces", "", name), name, &metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return obj.(*corev1.Namespace), nil
	}
}
