// Package registry contains the code that all kinds of the local groups share: the descriptors of a kind (Resource) and of a
// group-version (Group), and the strategies and storage for k8s.io/apiserver's generic registry that are built from them.
package registry

import (
	"cmp"
	"context"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/selectable"
	"portico.dev/internal/coreapi/validate"
)

// Group is one group-version and its resources.
type Group struct {
	Version     schema.GroupVersion
	AddToScheme func(*runtime.Scheme) error
	// Register adds to the scheme the conversions and kinds that AddToScheme does not add. It may be nil.
	Register func(*runtime.Scheme) error
	// Priority determines the order of groups in discovery, highest first. All versions of a group have the same.
	Priority int
	// Required is the reason why --runtime-config can turn off only Optional resources of the group-version. If empty, it can
	// be turned off.
	Required string
	// OptIn group-versions are served only if --runtime-config turns them on, like alpha APIs of kube-apiserver.
	OptIn bool
	// Resources are the stored resources.
	Resources []Resource
	// Virtual are the resources without storage.
	Virtual []Virtual
	// Types are further kinds in requests and responses of the group-version.
	Types []runtime.Object
}

// Virtual is a resource without storage. Reviews are not stored, a ComponentStatus is computed when it is read, and an Event of
// events.k8s.io is stored as an Event of v1.
type Virtual struct {
	// Name is the plural in URLs.
	Name string
	// Types are the kind and its list. Register may add them instead.
	Types []runtime.Object
	// Storage returns the handler of requests.
	Storage func(*Environment) rest.Storage
	// Named resources can be turned off by name in --runtime-config.
	Named bool
	// Samples are like Resource.Samples. Required if objects can be created and listed.
	Samples []string
}

// Resource is the descriptor of a kind. It contains everything that is specific to the kind.
type Resource struct {
	// Name is the plural in URLs. Singular is the name that kubectl prints and accepts.
	Name, Singular string
	ShortNames     []string
	Categories     []string
	// Object and List are empty values of the kind and of its list.
	Object, List runtime.Object
	// Samples are objects for tests, in YAML: the minimum that the kind accepts, without defaulted fields. Namespaced objects
	// are in "ns". Required. Tests of a running server create objects like the first one, many at a time and with other names,
	// so it must neither affect other objects nor depend on them.
	Samples []string
	// Optional resources can be turned off although their group-version is Required.
	Optional bool
	// Rules validate objects. Required.
	Rules validate.Rules
	// Warnings returns the warnings for objects that are valid but likely mistakes. It may be nil.
	Warnings func(obj runtime.Object) []string
	// Defaults sets the default values. It may be nil.
	Defaults func(obj runtime.Object)
	// Columns returns the columns of kubectl. If nil, they are the name and the creation time.
	Columns func() columns.Printer
	// Fields are the selectable fields in addition to name and namespace. It may be nil.
	Fields *selectable.Fields
	// ClusterScoped objects have no namespace.
	ClusterScoped bool
	// Directory is the directory of the objects below the etcd prefix in kube-apiserver. The default is Name.
	Directory string
	// WatchCache adds a watch cache, which has 14 goroutines, for resources that informers and clients read frequently. Other
	// resources are read from etcd, where every revision that is not compacted can be read and watched.
	WatchCache bool
	// TTL returns the time after which etcd deletes an object. If nil, objects are kept.
	TTL func(*Environment) time.Duration

	// AllowCreateOnUpdate lets PUT create an object that does not exist.
	AllowCreateOnUpdate bool
	// AllowUnconditionalUpdate lets PUT without a resourceVersion replace an object.
	AllowUnconditionalUpdate bool
	// ReturnDeletedObject makes DELETE return the deleted object instead of a Status. kube-apiserver decides this per kind.
	ReturnDeletedObject bool
	// Generations enables metadata.generation.
	Generations bool

	// Spec is the desired state, which a write to the status subresource does not change. Nil if the kind has none.
	Spec *Part
	// Status is the observed state. Nil if the kind has no status subresource.
	Status *Part
	// StatusOnCreate keeps the status in a create request: kubelets register nodes with a status.
	StatusOnCreate bool
	// StatusChangesMetadata lets a write to the status subresource change labels, annotations, finalizers and owners too.
	StatusChangesMetadata bool
	// SameContent reports whether two objects differ only in fields that do not count for the generation. If nil, the specs are
	// compared.
	SameContent func(a, b runtime.Object) bool

	// PrepareCreate and PrepareUpdate run after the generic preparation, for rules of the kind.
	PrepareCreate func(obj runtime.Object)
	PrepareUpdate func(obj, old runtime.Object)
	// PrepareStatus does the same for writes to the status subresource.
	PrepareStatus func(obj, old runtime.Object)
	// StatusResetFields are the paths of metadata fields that PrepareStatus restores although StatusChangesMetadata is set.
	StatusResetFields [][]string
	// PodSpec locates the spec of the pod that an object is or creates. Nil if the kind does not create pods.
	PodSpec *PodSpec
	// Scale describes the scale subresource. Nil if the kind has none.
	Scale *Scale
	// Storages returns further subresources by path ("pods/eviction"). It may replace the resource itself and its status.
	Storages func(e *Environment, main *REST) map[string]rest.Storage
	// AlsoServedIn lists other versions of the group that serve the same objects.
	AlsoServedIn []schema.GroupVersion
	// WarnOnUpdate reports whether an update gets the warnings of a create. If nil, every update does.
	WarnOnUpdate func(obj, old runtime.Object) bool
	// Stamp sets fields of a new object from the request, such as its author.
	Stamp func(ctx context.Context, obj runtime.Object)
	// SpecImmutable discards changes of the spec in updates.
	SpecImmutable bool
	// DeleteStrategy replaces the strategy of deletions. If nil, objects without finalizers are deleted immediately.
	DeleteStrategy func(Strategy) rest.RESTDeleteStrategy
	// Guard refuses a write that its author may not make although the request is authorized. old is nil on create.
	Guard func(ctx context.Context, e *Environment, obj, old runtime.Object) error
	// Authorize returns an error for a field of a valid object that the author of a write may not set to its value. It runs on
	// creates (old is nil) and updates of the main resource for every verb, and makes them Invalid.
	Authorize func(ctx context.Context, e *Environment, obj, old runtime.Object) *field.Error
	// CheckCreate and CheckStatus check a new object or a new status against its author and its namespace. Their errors precede
	// the errors of Rules. They may be nil.
	CheckCreate func(ctx context.Context, e *Environment, obj runtime.Object) field.ErrorList
	CheckStatus func(ctx context.Context, e *Environment, obj, old runtime.Object) field.ErrorList
	// Warn returns warnings that depend on other objects.
	Warn func(ctx context.Context, e *Environment, obj runtime.Object) []string
}

func (r *Resource) StorageDirectory() string {
	return cmp.Or(r.Directory, r.Name)
}

// Part is a field of a kind that generic code can access.
type Part struct {
	field string
	reset func(obj runtime.Object)
	Copy  func(to, from runtime.Object)
	equal func(a, b runtime.Object) bool
}

// PartOf describes the field with the given name that of returns.
func PartOf[T runtime.Object, F any](name string, of func(T) *F) *Part {
	return &Part{
		field: name,
		reset: func(obj runtime.Object) {
			var zero F
			*of(obj.(T)) = zero
		},
		Copy:  func(to, from runtime.Object) { *of(to.(T)) = *of(from.(T)) },
		equal: func(a, b runtime.Object) bool { return apiequality.Semantic.DeepEqual(of(a.(T)), of(b.(T))) },
	}
}

func SpecOf[T runtime.Object, F any](of func(T) *F) *Part { return PartOf("spec", of) }

func StatusOf[T runtime.Object, F any](of func(T) *F) *Part { return PartOf("status", of) }

// AddToScheme registers the kind, also as its internal version, with its defaults and its selectable fields.
func (r *Resource) AddToScheme(scheme *runtime.Scheme, version schema.GroupVersion) error {
	scheme.AddKnownTypes(InternalOf(version.Group), r.Object.DeepCopyObject(), r.List.DeepCopyObject())
	if r.Scale != nil {
		scheme.AddKnownTypes(scaleKind.GroupVersion(), &autoscalingv1.Scale{})
		scheme.AddKnownTypes(InternalOf(scaleKind.Group), &autoscalingv1.Scale{})
	}
	if r.Defaults != nil {
		defaults.Register(scheme, r.Object, r.List, r.Defaults)
	}
	if r.Fields == nil {
		return nil
	}
	kinds, _, err := scheme.ObjectKinds(r.Object)
	if err != nil {
		return err
	}
	return r.Fields.Register(scheme, version.WithKind(kinds[0].Kind))
}

func InternalOf(group string) schema.GroupVersion {
	return schema.GroupVersion{Group: group, Version: runtime.APIVersionInternal}
}
