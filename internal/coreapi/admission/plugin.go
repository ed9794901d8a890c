package admission

import (
	"context"
	"io"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"portico.dev/internal/clients"
	"portico.dev/internal/coreapi/hooks"
)

// Plugin is a row of the table.
type Plugin struct {
	// Name is upstream's.
	Name string
	// Default says that it is on unless it is disabled.
	Default bool
	// Foreign plugins ask webhooks or policies, which the founding of the house does not wait for.
	Foreign bool
	// Check says what is wrong with its part of the admission control configuration. Nil: it takes none.
	Check func(config io.Reader) error
	// New makes it. config is its part of the admission control configuration, nil when there is none.
	New func(d Deps, config io.Reader) (admission.Interface, error)
}

// Deps is what plugins are made of. All of it is there.
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
	// Served says whether a built-in resource exists here.
	Served func(schema.GroupVersionResource) bool
	// Authorizer decides what authors of requests may.
	Authorizer authorizer.Authorizer
	// RESTMapper knows every kind that is served or was last known to be, and asks nobody.
	RESTMapper meta.RESTMapper
	// Namespace reads a namespace from storage as it is now.
	Namespace func(ctx context.Context, name string) (*corev1.Namespace, error)
	// NamespaceOfCreate is the namespace that the request in hand may create in, as far as is known. An error says that it has
	// gone, or has become another of the same name.
	NamespaceOfCreate func(ctx context.Context, name string) (*corev1.Namespace, error)
	// Webhooks is how webhooks are reached.
	Webhooks hooks.Webhooks
	// Stopped is closed when nothing is admitted any more.
	Stopped <-chan struct{}
	Logger  *zap.Logger
}
