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

// Plugin is a row of the table.
type Plugin struct {
	// Name is upstream's.
	Name string
	// Default: it is enabled unless it is disabled by name.
	Default bool
	// SkipBootstrap: it is not called for bootstrap objects, because it calls webhooks or policies.
	SkipBootstrap bool
	// Check validates its part of the admission control configuration. Nil: it takes none.
	Check func(config io.Reader) error
	// New makes it. config is its part of the admission control configuration, nil when there is none.
	New func(d Deps, config io.Reader) (admission.Interface, error)
}

// Deps are the dependencies of plugins. All are set.
type Deps struct {
	// Client and Dynamic reach the local groups in process, as the server itself, and are answered before the server is
	// ready. Dynamic speaks JSON.
	Client  clients.Interface
	Dynamic dynamic.Interface
	// Informers are started by Run, those that were asked for in New.
	Informers *clients.Informers
	// LibraryClient and LibraryInformers are Client and Informers for the library's plugins.
	LibraryClient    kubernetes.Interface
	LibraryInformers informers.SharedInformerFactory
	// Served reports whether a built-in resource is served here.
	Served func(schema.GroupVersionResource) bool
	// Authorizer decides what the user of a request may do.
	Authorizer authorizer.Authorizer
	// RESTMapper knows every kind that is served or was last known to be, without requests.
	RESTMapper meta.RESTMapper
	// Namespace reads a namespace from storage as it is now.
	Namespace func(ctx context.Context, name string) (*corev1.Namespace, error)
	// NamespaceOfCreate returns the namespace that the request of ctx creates in. It fails if the namespace is gone or was
	// replaced by another of the same name since the request began.
	NamespaceOfCreate func(ctx context.Context, name string) (*corev1.Namespace, error)
	// Webhooks says how webhooks are reached.
	Webhooks Webhooks
	// Stopped is closed when the chain ends.
	Stopped <-chan struct{}
	Logger  *zap.Logger
}

// MapperFunc is a RESTMapper that gets the current one for each call: kinds change while the server runs.
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

// MayUseSigner asks whether u may use verb on a signer of certificates: on the resource "signers", which is not served, for
// the signer by name and then for all of its domain.
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
