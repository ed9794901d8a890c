package admission

import (
	"context"
	"io"
	"strings"

	"go.uber.org/zap"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"portico.dev/internal/clients"
)

// A Plugin is a row of the table.
type Plugin struct {
	// Name is upstream's name.
	Name string
	// Default enables the plugin unless it is disabled by name.
	Default bool
	// SkipBootstrap skips the plugin for bootstrap objects, because it calls webhooks or policies.
	SkipBootstrap bool
	// Check validates the plugin's part of the admission control configuration. Nil if the plugin has no configuration.
	Check func(config io.Reader) error
	// New creates the plugin. config is its part of the admission control configuration, or nil.
	New func(d Deps, config io.Reader) (admission.Interface, error)
}

// Deps contains the dependencies of plugins. All fields are set.
type Deps struct {
	// Client and Dynamic access the local groups in process, as the server itself, even before the server is ready. Dynamic
	// uses JSON.
	Client  clients.Interface
	Dynamic dynamic.Interface
	// Informers requested in New are started by Run.
	Informers *clients.Informers
	// LibraryClient and LibraryInformers are Client and Informers for k8s.io/apiserver's plugins.
	LibraryClient    kubernetes.Interface
	LibraryInformers informers.SharedInformerFactory
	// Served reports whether a built-in resource is served here.
	Served func(schema.GroupVersionResource) bool
	// Authorizer authorizes the user of a request.
	Authorizer authorizer.Authorizer
	// RESTMapper contains every kind that is served or was served before, and sends no requests.
	RESTMapper meta.RESTMapper
	// Namespace reads the current state of a namespace from storage.
	Namespace func(ctx context.Context, name string) (*corev1.Namespace, error)
	// NamespaceOfCreate returns the namespace of the create request in ctx. It fails if the namespace was deleted or replaced
	// by another one with the same name since the request began.
	NamespaceOfCreate func(ctx context.Context, name string) (*corev1.Namespace, error)
	// Webhooks configures connections to webhooks.
	Webhooks Webhooks
	// Stopped is closed when the chain ends.
	Stopped <-chan struct{}
	Logger  *zap.Logger
}

// MapperFunc is a RESTMapper that calls the function for each lookup, because kinds change while the server runs.
type MapperFunc func() meta.RESTMapper

var _ meta.RESTMapper = MapperFunc(nil)

func (f MapperFunc) KindFor(resource schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return f().KindFor(resource)
}

func (f MapperFunc) KindsFor(resource schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	return f().KindsFor(resource)
}

func (f MapperFunc) ResourceFor(input schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	return f().ResourceFor(input)
}

func (f MapperFunc) ResourcesFor(input schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	return f().ResourcesFor(input)
}

func (f MapperFunc) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	return f().RESTMapping(gk, versions...)
}

func (f MapperFunc) RESTMappings(gk schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	return f().RESTMappings(gk, versions...)
}

func (f MapperFunc) ResourceSingularizer(resource string) (string, error) {
	return f().ResourceSingularizer(resource)
}

// MayUseSigner reports whether u may use verb on a signer of certificates. It authorizes the resource "signers", which is not
// served, first for the signer by name, then for its domain.
func MayUseSigner(ctx context.Context, a authorizer.UnconditionalAuthorizer, u user.Info, verb, signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		decision, _, err := a.Authorize(ctx, authorizer.AttributesRecord{
			User: u, Verb: verb, Name: name, ResourceRequest: true,
			APIGroup: certificatesv1.GroupName, APIVersion: "*", Resource: "signers",
		})
		if err == nil && decision == authorizer.DecisionAllow {
			return true
		}
	}
	return false
}
