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
	// maxBodyBytes is the largest request body that is read, kube-apiserver's limit: etcd refuses 1.5 MiB, and JSON
	// is larger than the protobuf that it becomes.
	maxBodyBytes = 3 << 20
	// minWatchTimeout is how long a watch lasts that names no timeout, at least; at most twice that.
	minWatchTimeout = 30 * time.Minute
)

// api is what install has built.
type api struct {
	handler   http.Handler
	discovery Discovery // without what custom resources add to it
	custom    *crds.Definitions
	// definitions is the storage of the definitions of custom resources.
	definitions definitionReader
	repairer    *allocation.Repairer
	admission   *localadmission.Chain
	added       addedDocuments
}

// install opens the storages and registers every resource: what GenericAPIServer.InstallAPIGroups does, without its
// demand for OpenAPI documents, which are built at generate time, and without a server around it.
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
	// Not ServeHTTP: its mux cleans paths, redirects, and answers 404 in plain text.
	router := &groupVersionRouter{
		isBuiltIn: installer.builtIn.Has, builtIn: breakOffLogs(http.HandlerFunc(installer.container.Dispatch)), custom: built.custom,
	}
	built.handler = rememberNamespace(all.namespaces, factory.lists.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := w.(http.Flusher); !ok { // it is around the one that the library wants
			w = forLibrary(w, r)
		}
		router.ServeHTTP(w, r)
	})))
	return built, nil
}

// breakOffLogs breaks the response off when a log did: a part of it must not look like all of it.
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

// newContainer routes below the prefixes of the groups. A path or a verb that does not exist gets a Status.
func newContainer() *restful.Container {
	container := restful.NewContainer()
	container.Router(restful.CurlyRouter{})
	container.DoNotRecover(true) // the chain recovers, and knows http.ErrAbortHandler
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

// add registers one group-version and returns what discovery says of it.
func (i *installer) add(g servedGroup) ([]apidiscoveryv2.APIResourceDiscovery, error) {
	root := "/apis"
	if g.version.Group == "" {
		root = "/api"
	}
	group := &endpoints.APIGroupVersion{
		Root:         root,
		GroupVersion: g.version,
		Storage:      g.storage,
		// Options of requests (CreateOptions and the like) are read as those of v1, whatever the group.
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

// maxPatchCopies bounds what the copy operations of one JSON patch may add, in bytes.
const maxPatchCopies = 3 << 20

// boundPatches makes the library refuse patches that copy a value into itself until memory ends (CVE-2019-1002100, attack
// row C7). The bound is a variable of the library, which the generic server's constructor, unused here, would set. It is set
// once in a process: the library reads it without a lock while another server may already be at work.
var boundPatches = sync.OnceFunc(func() { jsonpatch.AccumulatedCopySizeLimit = maxPatchCopies })

// ownStream is the storage behind one watch cache. Its watch of etcd, and its requests for progress, have a stream of
// their own.
//
// A consistent read waits until the cache has seen the revision of the moment, which etcd tells it on request: on all of
// a stream, and only when no watch of the stream begins at a revision that is still to come (progressIfSync in etcd's
// watchable_store.go). All of our watches are of one client, so they would share one stream. Then a cache that was
// filled last, and watches from the next revision on, keeps the others from hearing anything until somebody writes; at a
// quiet start nobody does, and informers wait for ever. Upstream has a client for each resource.
type ownStream struct {
	storage.Interface
	of string // the resource
}

// streamHeader is what etcd's client tells streams apart by: the metadata of the context as a whole.
const streamHeader = "portico-cache"

func (o ownStream) on(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, streamHeader, o.of)
}

func (o ownStream) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	return o.Interface.Watch(o.on(ctx), key, opts)
}

func (o ownStream) RequestWatchProgress(ctx context.Context) error {
	return o.Interface.RequestWatchProgress(o.on(ctx))
}

// EnableResourceSizeEstimation estimates nothing. The library would keep the size of each object beside its key, look at all
// keys every minute, and tell its own fairness how large a list will be, which is not ours.
func (o ownStream) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }
