package coreapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/emicklei/go-restful/v3"
	"google.golang.org/grpc/metadata"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/storage"

	localadmission "portico.dev/internal/coreapi/admission"
	"portico.dev/internal/coreapi/allocation"
	"portico.dev/internal/coreapi/crds"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/respond"
)

const (
	// maxBodyBytes limits a request body, like in kube-apiserver: etcd refuses 1.5 MiB, and JSON is larger than the resulting
	// protobuf.
	maxBodyBytes = 3 << 20
	// minWatchTimeout is the minimum duration of a watch without a timeout. The maximum is twice that.
	minWatchTimeout = 30 * time.Minute
)

// api is the result of install.
type api struct {
	handler   http.Handler
	discovery Discovery // without custom resources
	custom    *crds.Definitions
	// definitions is the storage of the definitions of custom resources.
	definitions definitionReader
	repairer    *allocation.Repairer
	admission   *localadmission.Chain
	added       addedDocuments
}

// install opens the storages and registers every resource. It corresponds to GenericAPIServer.InstallAPIGroups, but needs
// neither a server nor OpenAPI documents, which go generate builds.
func install(cfg Config, c *codecs, factory *storageFactory, own definitionsClient, changed func(), mapper meta.RESTMapper,
	admissionFor func(*storages) (*localadmission.Chain, error),
) (_ *api, err error) {
	all, err := openStorages(cfg, c, factory, own.crds().Lister(), mapper)
	if err != nil {
		return nil, err
	}
	admit, err := admissionFor(all)
	if err != nil {
		return nil, err
	}
	built := &api{repairer: all.repairer, admission: admit}
	defer func() {
		if err != nil {
			admit.Abandon()
		}
	}()
	schemas, err := schemasOf(c, all.groups, cfg.knownDefinitions)
	if err != nil {
		return nil, err
	}
	converter, err := newTypeConverter(schemas)
	if err != nil {
		return nil, err
	}
	installer := &installer{
		codec: c, converter: converter, authorizer: cfg.Authorizer,
		admission: admit,
		builtIn:   sets.New(cfg.RuntimeConfig.builtIn()...),
		container: newContainer(), equivalents: runtime.NewEquivalentResourceRegistryWithIdentity(all.directoryOf),
	}
	if err = installer.addAll(all.groups, &built.discovery); err != nil {
		return nil, err
	}
	if built.added, err = describeAdded(cfg, c, installer.container); err != nil {
		return nil, err
	}
	if built.custom, err = installer.addDefinitions(cfg, factory, own, changed, &built.discovery); err != nil {
		return nil, fmt.Errorf("install custom resources: %w", err)
	}
	built.definitions = installer.definitions
	// Dispatch, not ServeHTTP, because its mux cleans paths, redirects, and returns 404 in plain text.
	router := &groupVersionRouter{
		isBuiltIn: installer.builtIn.Has, builtIn: breakOffLogs(http.HandlerFunc(installer.container.Dispatch)), custom: built.custom,
	}
	built.handler = rememberNamespace(all.namespaces, factory.lists.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := w.(http.Flusher); !ok { // the list cache has wrapped the writer that k8s.io/apiserver requires
			w = forLibrary(w, r)
		}
		router.ServeHTTP(w, r)
	})))
	return built, nil
}

// breakOffLogs aborts the response if the log stream failed: a partial log must not look complete.
func breakOffLogs(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/log") {
			next.ServeHTTP(w, r)
			return
		}
		ctx, broken := registry.WithBreak(r.Context())
		next.ServeHTTP(w, r.WithContext(ctx))
		if broken.Load() {
			panic(http.ErrAbortHandler)
		}
	})
}

// newContainer routes below the prefixes of the groups. Unknown paths and verbs get a Status.
func newContainer() *restful.Container {
	container := restful.NewContainer()
	container.Router(restful.CurlyRouter{})
	container.DoNotRecover(true) // the chain recovers, and handles http.ErrAbortHandler
	container.ServiceErrorHandler(func(e restful.ServiceError, r *restful.Request, w *restful.Response) {
		respond.Error(w, r.Request, apierrors.NewGenericServerResponse(
			e.Code, r.Request.Method, schema.GroupResource{}, "", e.Message, 0, false))
	})
	return container
}

type installer struct {
	codec       *codecs
	converter   managedfields.TypeConverter
	authorizer  authorizer.UnconditionalAuthorizer
	admission   admission.Interface
	builtIn     sets.Set[schema.GroupVersion]
	container   *restful.Container
	equivalents runtime.EquivalentResourceRegistry
	definitions definitionReader // set by addDefinitions
}

func (i *installer) addAll(groups []servedGroup, to *Discovery) error {
	for _, g := range groups {
		resources, err := i.add(g)
		if err != nil {
			return fmt.Errorf("install %s: %w", g.version, err)
		}
		to.add(g.version, resources)
	}
	return nil
}

// add registers one group-version and returns its discovery.
func (i *installer) add(g servedGroup) ([]apidiscoveryv2.APIResourceDiscovery, error) {
	root := "/apis"
	if g.version.Group == "" {
		root = "/api"
	}
	group := &endpoints.APIGroupVersion{
		Root:         root,
		GroupVersion: g.version,
		Storage:      g.storage,
		// Request options such as CreateOptions are decoded as v1 in all groups.
		OptionsExternalVersion: &schema.GroupVersion{Version: "v1"},

		Serializer:            i.codec.negotiated(g.version.Group),
		ParameterCodec:        i.codec.parameters,
		Typer:                 i.codec.scheme,
		Creater:               i.codec.scheme,
		Convertor:             ownVersionConvertor{i.codec.scheme},
		ConvertabilityChecker: i.codec.scheme,
		UnsafeConvertor:       runtime.UnsafeObjectConvertor(i.codec.scheme),
		Defaulter:             i.codec.scheme,
		Namer:                 runtime.Namer(meta.NewAccessor()),
		TypeConverter:         i.converter,

		EquivalentResourceRegistry: i.equivalents,
		Authorizer:                 i.authorizer,
		Admit:                      i.admission,
		MinRequestTimeout:          minWatchTimeout,
		MaxRequestBodyBytes:        maxBodyBytes,
	}
	resources, _, err := group.InstallREST(i.container)
	return resources, err
}

// maxPatchCopies limits the bytes that the copy operations of one JSON patch may add.
const maxPatchCopies = 3 << 20

// boundPatches makes the jsonpatch library refuse patches that copy a value into itself until memory is exhausted
// (CVE-2019-1002100, attack row C7). The limit is a global variable, which the constructor of the generic server, unused here,
// would set. It is set only once per process, because the library reads it without a lock, possibly for another server.
var boundPatches = sync.OnceFunc(func() { jsonpatch.AccumulatedCopySizeLimit = maxPatchCopies })

// ownStream is the storage behind one watch cache. It uses a separate stream for its etcd watch and its progress requests.
//
// A consistent read waits until the cache has seen the current revision, which etcd sends on request. It sends it to all
// watches of a stream, and only if no watch of the stream begins at a future revision (progressIfSync in etcd's
// watchable_store.go). All watches use one client, so they would share one stream. Then a cache that was filled last, and
// watches from the next revision, blocks progress for the other caches until the next write. Without writes, informers then
// wait forever at startup. kube-apiserver has one client per resource.
type ownStream struct {
	storage.Interface
	resource string // resource
}

// streamHeader separates streams: etcd's client keeps one stream per set of outgoing metadata.
const streamHeader = "portico-cache"

func (o ownStream) withStreamKey(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, streamHeader, o.resource)
}

func (o ownStream) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	return o.Interface.Watch(o.withStreamKey(ctx), key, opts)
}

func (o ownStream) RequestWatchProgress(ctx context.Context) error {
	return o.Interface.RequestWatchProgress(o.withStreamKey(ctx))
}

// EnableResourceSizeEstimation does nothing. etcd3's storage would keep the size of each object with its key, scan all keys
// every minute, and pass the expected size of lists to k8s.io/apiserver's priority and fairness, which Portico does not use.
func (o ownStream) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }
