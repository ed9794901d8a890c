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

// definitionsResync shows upstream's controllers every definition again, for what a restart made them forget: one whose
// names were accepted and that was not established yet.
const definitionsResync = 5 * time.Minute

// definitionsClient is the client of the controllers of custom resource definitions. It reaches the handler before the
// server is ready, because that includes that the definitions are known.
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

// noWait is for clients of the handler that is installed already.
func noWait(context.Context) error { return nil }

// CRDs is the informer of definitions. It runs while the server does and has synced once the server is Ready.
func (s *Server) CRDs() apiextensionsinformers.CustomResourceDefinitionInformer {
	return s.own.crds()
}

func (c definitionsClient) crds() apiextensionsinformers.CustomResourceDefinitionInformer {
	return c.informers.Apiextensions().V1().CustomResourceDefinitions()
}

// addDefinitions registers apiextensions.k8s.io, which brings its own scheme: a definition has internal types that are
// not its v1 types. What the definitions define is served by what it returns.
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

// DefinedResources are the namespaced resources that definitions in etcd make be served at this moment, whether discovery
// says so already or not. It is for whoever must not overlook any.
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

// optionsFunc says how the library is to store a resource.
type optionsFunc func(schema.GroupResource) generic.RESTOptions

func (f optionsFunc) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	return f(resource), nil
}

// instances are stored as they were sent: what encodes them knows their schema, and puts itself around this codec. Their
// watch cache is made by the first request for them, long after the start.
func (s *storageFactory) instances(r schema.GroupResource) generic.RESTOptions {
	options := s.plain(r, unstructured.UnstructuredJSONScheme, r.Group+"/"+r.Resource)
	options.Decorator = s.lazilyCached
	return options
}

// embedded etcd is this server's alone.
func (s *storageFactory) embedded() bool { return len(s.client.Endpoints()) == 0 }

// groupVersionRouter chooses who serves a request by its group-version. A definition cannot take a group-version that is built in, and
// nothing falls through from one to the other.
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
