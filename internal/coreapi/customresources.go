package coreapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	generateddefinitions "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"

	"portico.dev/internal/coreapi/crds"
	"portico.dev/internal/coreapi/registry"
)

// definitionsResync is the resync period of the apiextensions-apiserver controllers. After a restart they have lost the pending
// step of a definition that has its names accepted but is not established yet.
const definitionsResync = 5 * time.Minute

// definitionsClient is the client of the controllers of custom resource definitions. It uses the handler before the server is
// ready, because readiness requires that the definitions are loaded.
type definitionsClient struct {
	clientset.Interface
	informers externalversions.SharedInformerFactory
}

func newDefinitionsClient(s *Server) (definitionsClient, error) {
	self := &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
	client, err := clientset.NewForConfig(inProcessConfig(asUser(self, s.handlerOf(&s.installed), noWait)))
	if err != nil {
		return definitionsClient{}, fmt.Errorf("client of custom resource definitions: %w", err)
	}
	return definitionsClient{client, externalversions.NewSharedInformerFactory(client, definitionsResync)}, nil
}

// noWait is the await function for a handler that is already installed.
func noWait(context.Context) error { return nil }

// CRDs returns the informer of definitions. It runs as long as the server and has synced once the server is Ready.
func (s *Server) CRDs() apiextensionsinformers.CustomResourceDefinitionInformer {
	return s.own.crds()
}

func (c definitionsClient) crds() apiextensionsinformers.CustomResourceDefinitionInformer {
	return c.informers.Apiextensions().V1().CustomResourceDefinitions()
}

// addDefinitions registers apiextensions.k8s.io, which has its own scheme: the internal types of a definition differ from its
// v1 types. The returned Definitions serve the custom resources.
func (i *installer) addDefinitions(cfg Config, factory *storageFactory, own definitionsClient, changed func(), to *Discovery) (*crds.Definitions, error) {
	storage, err := crds.Storage(optionsFunc(func(r schema.GroupResource) generic.RESTOptions {
		options := factory.plain(r, crds.StorageCodec(), r.Group+"/"+r.Resource)
		options.StorageConfig.EncodeVersioner = apiextensionsv1.SchemeGroupVersion
		return options
	}))
	if err != nil {
		return nil, err
	}
	i.definitions = storage["customresourcedefinitions"].(definitionReader)
	group := servedGroup{apiextensionsv1.SchemeGroupVersion, storage}
	codec := &codecs{scheme: apiserver.Scheme, factory: apiserver.Codecs, parameters: metav1.ParameterCodec}
	schemas, err := schemasOf(codec, []servedGroup{group}, generateddefinitions.GetOpenAPIDefinitions)
	if err != nil {
		return nil, err
	}
	converter, err := newTypeConverter(schemas)
	if err != nil {
		return nil, err
	}
	factory.definitions = own.crds().Lister()
	extended := *i
	extended.codec, extended.converter = codec, converter
	if err := extended.addAll([]servedGroup{group}, to); err != nil {
		return nil, err
	}
	return crds.New(crds.Config{
		Client: own, Informers: own.informers,
		Instances: optionsFunc(factory.instances), Admission: i.admission, Authorizer: i.authorizer,
		BuiltIn: i.builtIn.Has, Schemas: schemas, Webhooks: cfg.Webhooks, Alone: factory.embedded(),
		Changed: changed, MinWatchTimeout: minWatchTimeout, MaxBodyBytes: maxBodyBytes,
		Logger: cfg.Logger.Named("crds"),
	})
}

// definitionReader reads the definitions in etcd.
type definitionReader interface {
	rest.Lister
	rest.Getter
}

// DefinedResources returns the namespaced resources that are established by definitions in etcd at this moment, even if
// discovery does not contain them yet. It is for callers that must not miss a resource.
func (s *Server) DefinedResources(ctx context.Context) ([]schema.GroupVersionResource, error) {
	select {
	case <-s.ready:
	default:
		return nil, notReady()
	}
	group := apiextensionsv1.GroupName
	list, err := s.definitions.List(registry.ReadContext(ctx, group, "customresourcedefinitions", "", ""), &metainternalversion.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list custom resource definitions: %w", err)
	}
	var defined []schema.GroupVersionResource
	builtIn := s.BuiltIn()
	items := list.(*apiextensions.CustomResourceDefinitionList).Items
	for i := range items {
		crd := &items[i]
		if crd.Spec.Scope != apiextensions.NamespaceScoped || !apiextensions.IsCRDConditionTrue(crd, apiextensions.Established) {
			continue
		}
		for _, v := range crd.Spec.Versions {
			gv := schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name}
			if v.Served && !slices.Contains(builtIn, gv) {
				defined = append(defined, gv.WithResource(crd.Spec.Names.Plural))
			}
		}
	}
	return defined, nil
}

// optionsFunc implements generic.RESTOptionsGetter.
type optionsFunc func(schema.GroupResource) generic.RESTOptions

func (f optionsFunc) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	return f(resource), nil
}

// instances returns the storage options of custom resources. Objects are stored as they were sent: the encoder knows their
// schema and wraps this codec. The first request for a resource creates its watch cache, long after startup.
func (s *storageFactory) instances(r schema.GroupResource) generic.RESTOptions {
	options := s.plain(r, unstructured.UnstructuredJSONScheme, r.Group+"/"+r.Resource)
	options.Decorator = s.lazilyCached
	return options
}

// embedded reports whether etcd is embedded and used only by this server.
func (s *storageFactory) embedded() bool { return len(s.client.Endpoints()) == 0 }

// groupVersionRouter selects the handler of a request by its group-version. A definition cannot take a built-in group-version,
// so neither handler falls back to the other.
type groupVersionRouter struct {
	isBuiltIn       func(schema.GroupVersion) bool
	builtIn, custom http.Handler
}

func (f *groupVersionRouter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.SplitN(strings.Trim(r.URL.Path, "/"), "/", 4)
	if parts[0] != "apis" || len(parts) < 3 || f.isBuiltIn(schema.GroupVersion{Group: parts[1], Version: parts[2]}) {
		f.builtIn.ServeHTTP(w, r)
		return
	}
	f.custom.ServeHTTP(w, r)
}
