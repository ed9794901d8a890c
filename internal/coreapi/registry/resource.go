// Package registry is what all kinds of the local groups share: the descriptor of a kind (Resource) and of a group-version
// (Group), and the strategies and the storage that the library's registry makes of them.
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

// Group is one group-version and what it serves.
type Group struct {
	Version     schema.GroupVersion
	AddToScheme func(*runtime.Scheme) error
	// Register adds to the scheme what the group-version needs besides its types. Nil: nothing.
	Register func(*runtime.Scheme) error
	// Priority is its group's place in discovery, the highest first; versions of one group have the same.
	Priority int
	// Required is why --runtime-config cannot turn the group-version off, but for its Optional resources. Empty: it can.
	Required string
	// Resources are stored.
	Resources []Resource
	// Virtual resources have no storage of their own.
	Virtual []Virtual
	// Types are other kinds that requests and responses of the group-version have.
	Types []runtime.Object
}

// Virtual is a resource without storage: reviews are answered and forgotten, a ComponentStatus is found out when it is read,
// and an Event of events.k8s.io is one of v1.
type Virtual struct {
	// Name is the plural in URLs.
	Name string
	// Types are the kind and its list. Register may add them instead.
	Types []runtime.Object
	// Storage answers requests.
	Storage func(*Environment) rest.Storage
	// Named in --runtime-config it can be turned off.
	Named bool
	// Samples are as those of a Resource. Required if objects can be created and listed.
	Samples []string
}

// Resource is the descriptor of a kind: everything that the server knows of it.
type Resource struct {
	// Name is the plural in URLs, Singular what kubectl prints and accepts.
	Name, Singular string
	ShortNames     []string
	Categories     []string
	// Object and List are empty values of the kind and of its list.
	Object, List runtime.Object
	// Samples are objects for tests, in YAML: the least that the kind accepts, without anything that has a default. Objects of
	// namespaces are in "ns". Required. Tests of a running server create objects like the first one, many at a time and
	// under other names: it must do no harm to other objects there, nor need them.
	Samples []string
	// Optional resources can be turned off although their group-version is Required.
	Optional bool
	// Rules are its validation. Required.
	Rules validate.Rules
	// Warnings are what to tell the author of an object that is allowed and yet likely to be regretted. Nil: nothing.
	Warnings func(obj runtime.Object) []string
	// Defaults fills in what a client may leave out. Nil: nothing is.
	Defaults func(obj runtime.Object)
	// Columns are what kubectl shows. Nil: the name and the time of creation.
	Columns func() columns.Printer
	// Fields are what field selectors may ask for besides name and namespace. Nil: nothing.
	Fields *selectable.Fields
	// ClusterScoped objects have no namespace.
	ClusterScoped bool
	// Directory is where kube-apiserver keeps the objects below the prefix. Empty: name.
	Directory string
	// WatchCache puts a watch cache before etcd: worth its 14 goroutines for what informers and lists ask for all the
	// time. The rest is read from etcd, where every version that etcd still has can be read and watched.
	WatchCache bool
	// TTL is the time after which etcd forgets an object. Nil: never.
	TTL func(*Environment) time.Duration

	// AllowCreateOnUpdate lets PUT create what is not there.
	AllowCreateOnUpdate bool
	// AllowUnconditionalUpdate lets PUT replace whatever is there when it names no resourceVersion.
	AllowUnconditionalUpdate bool
	// ReturnDeletedObject makes the answer to a DELETE the object as it was, and not a Status: upstream's choice per kind.
	ReturnDeletedObject bool
	// Generations are counted in metadata.generation.
	Generations bool

	// Spec is what users ask for; a write to the status subresource leaves it alone. Nil: there is none.
	Spec *Part
	// Status is what was observed; nil: the kind has no status subresource.
	Status *Part
	// StatusOnCreate keeps the status that the creator sent: kubelets register nodes with theirs.
	StatusOnCreate bool
	// StatusChangesMetadata lets a write to the status subresource change labels, annotations, finalizers and owners too.
	StatusChangesMetadata bool
	// SameContent tells a change of content, which counts as a generation, from one of metadata. Nil: by spec.
	SameContent func(a, b runtime.Object) bool

	// PrepareCreate and PrepareUpdate follow the rules above, for what a kind has of its own.
	PrepareCreate func(obj runtime.Object)
	PrepareUpdate func(obj, old runtime.Object)
	// PrepareStatus does the same for writes to the status subresource.
	PrepareStatus func(obj, old runtime.Object)
	// StatusResetFields are the fields of metadata that PrepareStatus restores although StatusChangesMetadata is set, as paths.
	StatusResetFields [][]string
	// PodSpec is the spec of the pod that an object is, or makes, and where it is. Nil: the kind makes no pods.
	PodSpec *PodSpec
	// Scale is the scale subresource. Nil: there is none.
	Scale *Scale
	// Storages are further subresources, by path ("pods/eviction"). It may replace the resource itself and its status.
	Storages func(e *Environment, main *REST) map[string]rest.Storage
	// AlsoServedIn are other versions of the group in which clients see the same objects.
	AlsoServedIn []schema.GroupVersion
	// WarnOnUpdate reports whether an update is worth the warnings of a create. Nil: every one is.
	WarnOnUpdate func(obj, old runtime.Object) bool
	// Stamp writes into a new object what follows from the request: who asks.
	Stamp func(ctx context.Context, obj runtime.Object)
	// SpecImmutable drops what updates say of the spec: it stays as it was created.
	SpecImmutable bool
	// DeleteStrategy replaces the strategy of deletions. Nil: objects without finalizers go at once.
	DeleteStrategy func(Strategy) rest.RESTDeleteStrategy
	// Guard refuses a write that its author may not make although the request was allowed. old is nil on create.
	Guard func(ctx context.Context, e *Environment, obj, old runtime.Object) error
	// Authorize finds a field that the author of a write may not set to what it is, in an object that is valid otherwise.
	// It is asked about creates (old is nil) and updates of the main resource, whatever their verb, and makes them Invalid.
	Authorize func(ctx context.Context, e *Environment, obj, old runtime.Object) *field.Error
	// CheckCreate and CheckStatus find what a new object, or a new status, may not say in view of its author and its namespace. Their
	// errors are in front of those of Rules. Nil: nothing.
	CheckCreate func(ctx context.Context, e *Environment, obj runtime.Object) field.ErrorList
	CheckStatus func(ctx context.Context, e *Environment, obj, old runtime.Object) field.ErrorList
	// Warn returns what to tell the author of a write in view of other objects.
	Warn func(ctx context.Context, e *Environment, obj runtime.Object) []string
}

func (r *Resource) StorageDirectory() string {
	return cmp.Or(r.Directory, r.Name)
}

// Part is one field of a kind, reachable without knowing the kind.
type Part struct {
	field string
	reset func(obj runtime.Object)
	Copy  func(to, from runtime.Object)
	equal func(a, b runtime.Object) bool
}

// PartOf describes the field called name that of points at.
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

// AddToScheme registers the kind as its own internal version too, with its defaults and its selectable fields.
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
