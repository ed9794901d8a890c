package crds

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	apiextensionsvalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/apiapproval"
	"k8s.io/apiextensions-apiserver/pkg/controller/establish"
	"k8s.io/apiextensions-apiserver/pkg/controller/finalizer"
	"k8s.io/apiextensions-apiserver/pkg/controller/nonstructuralschema"
	"k8s.io/apiextensions-apiserver/pkg/controller/status"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	library "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/utils/ptr"

	"go.uber.org/zap"

	"portico.dev/internal/coreapi/admission"
	"portico.dev/internal/coreapi/openapidocs"
)

const (
	// storageWait is half of the time during which requests in flight keep the storage of a changed definition, because
	// apiextensions-apiserver doubles it.
	storageWait = 30 * time.Second
	// documentsDelay batches changes before documents are built: a definition changes five times until it is served, and
	// installers create dozens at once. A build for each change caused 5 MB of garbage per definition.
	documentsDelay = 300 * time.Millisecond
	// conditionWorkers is the number of workers of each controller that only sets conditions. deletionWorkers applies to the
	// controller that deletes instances, which can take a minute for each definition.
	conditionWorkers = 1
	deletionWorkers  = 5
	// kindDefinition is the kind of objects that configure conversion webhooks.
	kindDefinition = "CustomResourceDefinition"
)

// Config configures Definitions. Fields without a default are required.
type Config struct {
	// Client writes definitions with the necessary permissions.
	Client clientset.Interface
	// Informers of definitions. Run starts them.
	Informers externalversions.SharedInformerFactory
	// Instances returns the storage options of custom resources.
	Instances generic.RESTOptionsGetter
	Admission library.Interface
	// Authorizer decides whether an update that creates an object may create it.
	Authorizer authorizer.UnconditionalAuthorizer
	// BuiltIn reports built-in group-versions, which a definition cannot take.
	BuiltIn func(schema.GroupVersion) bool
	// Schemas contains the schemas of metadata by name. Apply needs them in addition to the schema of a definition.
	Schemas map[string]*spec.Schema
	// Webhooks configures connections to conversion webhooks. Default: by URL.
	Webhooks admission.Webhooks
	// Alone means that no other server shares the storage, so that the server need not wait for replicas. Default false.
	Alone bool
	// Changed is called after a change of Served or Documents. It must not block.
	Changed func()

	MinWatchTimeout time.Duration
	MaxBodyBytes    int64
	Logger          *zap.Logger
}

// Definitions serves custom resources.
type Definitions struct {
	cfg         Config
	log         *zap.Logger
	informer    apiextensionsinformers.CustomResourceDefinitionInformer
	instances   instances
	controllers []func(context.Context)

	served    atomic.Pointer[Served]
	documents atomic.Pointer[[]openapidocs.Document]
	built     builtDocuments
	changed   chan struct{}
	ready     chan struct{}
}

// instances is apiextensions-apiserver's handler, which has an unexported type.
type instances interface {
	http.Handler
	finalizer.CRClientGetter
}

// New creates the handler and the controllers. The informers must not have been started.
func New(cfg Config) (*Definitions, error) {
	apiextensionsvalidation.RegisterMetrics()
	d := &Definitions{
		cfg: cfg, log: cfg.Logger, informer: cfg.Informers.Apiextensions().V1().CustomResourceDefinitions(),
		built: builtDocuments{}, changed: make(chan struct{}, 1), ready: make(chan struct{}),
	}
	d.served.Store(&Served{})
	d.documents.Store(&[]openapidocs.Document{})
	writer := cfg.Client.ApiextensionsV1()
	establishing := establish.NewEstablishingController(d.informer, writer)
	var seen apiextensionsinformers.CustomResourceDefinitionInformer = d.informer
	if cfg.Alone {
		seen = settledInformer{d.informer}
	}
	// The two nil discovery handlers are never reached, because ServeHTTP handles all requests without a resource.
	handler, err := apiserver.NewCustomResourceDefinitionHandler(nil, nil, seen, http.HandlerFunc(notFound),
		cfg.Instances, cfg.Admission, establishing, cfg.Webhooks.Resolver(), cfg.Webhooks.Wrapper(kindDefinition), 1, cfg.Authorizer,
		storageWait, cfg.MinWatchTimeout, cfg.Schemas, cfg.MaxBodyBytes)
	if err != nil {
		return nil, fmt.Errorf("handler of custom resources: %w", err)
	}
	d.instances = handler
	cfg.Webhooks.Services.AddSource(kindDefinition, d.conversionWebhooks)
	naming := status.NewNamingConditionController(klog.Background(), d.informer, writer)
	structure := nonstructuralschema.NewConditionController(d.informer, writer)
	approval := apiapproval.NewKubernetesAPIApprovalPolicyConformantConditionController(d.informer, writer)
	deletion := finalizer.NewCRDFinalizer(d.informer, writer, handler)
	d.controllers = []func(context.Context){
		naming.RunWithContext,
		establishing.RunWithContext,
		func(ctx context.Context) { structure.RunWithContext(conditionWorkers, ctx) },
		func(ctx context.Context) { approval.RunWithContext(conditionWorkers, ctx) },
		func(ctx context.Context) { deletion.RunWithContext(deletionWorkers, ctx) },
	}
	return d, nil
}

// Ready returns a channel that is closed when every stored definition is served.
func (d *Definitions) Ready() <-chan struct{} { return d.ready }

// Run watches definitions, drives their conditions and deletions, and updates Served and Documents, until ctx ends. The workers
// of apiextensions-apiserver's controllers end with ctx too, each after its current item. There is no way to wait for them, so
// the server must wait for their requests through Config.Client.
func (d *Definitions) Run(ctx context.Context) error {
	registration, err := d.informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { d.wake() },
		UpdateFunc: func(any, any) { d.wake(); d.cfg.Webhooks.Services.Sweep() },
		DeleteFunc: func(any) { d.wake(); d.cfg.Webhooks.Services.Sweep() },
	})
	if err != nil {
		return fmt.Errorf("follow custom resource definitions: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer d.cfg.Informers.Shutdown()
	defer running.Wait()
	defer cancel()
	d.cfg.Informers.Start(ctx.Done())
	for _, controller := range d.controllers {
		running.Go(func() { controller(ctx) })
	}
	if !cache.WaitFor(ctx, "", registration.HasSyncedChecker()) {
		return nil
	}
	if err := d.publish(); err != nil {
		return err
	}
	close(d.ready)
	describe := time.NewTimer(0)
	defer describe.Stop()
	described := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.changed:
			err = d.publish()
			if described {
				described = false
				describe.Reset(documentsDelay)
			}
		case <-describe.C:
			described = true
			err = d.describe(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// wake makes Run publish again. Several events may share one run.
func (d *Definitions) wake() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// established returns the served definitions, ordered by name.
func (d *Definitions) established() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	all, err := d.informer.Lister().List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list custom resource definitions: %w", err)
	}
	all = slices.DeleteFunc(all, func(crd *apiextensionsv1.CustomResourceDefinition) bool { return !isEstablished(crd) })
	slices.SortFunc(all, byName)
	return all, nil
}

// conversionWebhooks returns the conversion webhooks that are Services.
func (d *Definitions) conversionWebhooks() (references []admission.Reference) {
	all, _ := d.informer.Lister().List(labels.Everything()) // the lister of a cache returns no error
	for _, crd := range all {
		c := crd.Spec.Conversion
		if c == nil || c.Webhook == nil || c.Webhook.ClientConfig == nil || c.Webhook.ClientConfig.Service == nil {
			continue
		}
		service := c.Webhook.ClientConfig.Service
		references = append(references, admission.Reference{
			Object: crd.Name, Namespace: service.Namespace, Name: service.Name, Port: ptr.Deref(service.Port, 0), Path: ptr.Deref(service.Path, ""),
			CABundle: c.Webhook.ClientConfig.CABundle,
		})
	}
	return references
}
