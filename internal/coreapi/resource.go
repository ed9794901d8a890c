package coreapi

import (
	"context"
	"time"

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

// group is one group-version and what it serves.
type group struct {
	version     schema.GroupVersion
	addToScheme func(*runtime.Scheme) error
	// register adds to the scheme what the group-version needs besides its types. Nil: nothing.
	register func(*runtime.Scheme) error
	// resources are stored.
	resources []resource
	// transient kinds are not stored: they are posted, answered and forgotten (reviews.go), or found out (componentstatus.go).
	transient []runtime.Object
}

// resource is one entry of the table: everything that the server knows of a kind.
type resource struct {
	// name is the plural in URLs, singular what kubectl prints and accepts.
	name, singular string
	shortNames     []string
	categories     []string
	// object and list are empty values of the kind and of its list.
	object, list runtime.Object
	// rules are its validation. Required.
	rules validate.Rules
	// warnings are what to tell the author of an object that is allowed and yet likely to be regretted. Nil: nothing.
	warnings func(obj runtime.Object) []string
	// defaults fills in what a client may leave out. Nil: nothing is.
	defaults func(obj runtime.Object)
	// columns are what kubectl shows. Nil: the name and the time of creation.
	columns func() columns.Printer
	// fields are what field selectors may ask for besides name and namespace. Nil: nothing.
	fields *selectable.Fields
	// clusterScoped objects have no namespace.
	clusterScoped bool
	// directory is where kube-apiserver keeps the objects below the prefix. Empty: name.
	directory string
	// cached puts a watch cache before etcd: worth its 14 goroutines for what informers and lists ask for all the
	// time. The rest is read from etcd, where every version that etcd still has can be read and watched.
	cached bool
	// lifetime after which etcd forgets an object. Zero: never.
	lifetime time.Duration

	// createOnUpdate lets PUT create what is not there.
	createOnUpdate bool
	// blindUpdate lets PUT replace whatever is there when it names no resourceVersion.
	blindUpdate bool
	// answersDeleted makes the answer to a DELETE the object as it was, and not a Status: upstream's choice per kind.
	answersDeleted bool
	// generations are counted in metadata.generation.
	generations bool

	// spec is what users ask for; a write to the status subresource leaves it alone. Nil: there is none.
	spec *part
	// status is what was observed; nil: the kind has no status subresource.
	status *part
	// statusOnCreate keeps the status that the creator sent: kubelets register nodes with theirs.
	statusOnCreate bool
	// statusMeta lets a write to the status subresource change labels, annotations, finalizers and owners too.
	statusMeta bool
	// sameContent tells a change of content, which counts as a generation, from one of metadata. Nil: by spec.
	sameContent func(a, b runtime.Object) bool

	// prepareCreate and prepareUpdate follow the rules above, for what a kind has of its own.
	prepareCreate func(obj runtime.Object)
	prepareUpdate func(obj, old runtime.Object)
	// prepareStatus does the same for writes to the status subresource.
	prepareStatus func(obj, old runtime.Object)
	// statusKeeps are the fields of metadata that prepareStatus restores although statusMeta is set, as paths.
	statusKeeps [][]string
	// alsoAt are other versions of the group in which clients see the same objects.
	alsoAt []schema.GroupVersion
	// warnsAgain reports whether an update is worth the warnings of a create. Nil: every one is.
	warnsAgain func(obj, old runtime.Object) bool
	// stamp writes into a new object what follows from the request: who asks.
	stamp func(ctx context.Context, obj runtime.Object)
	// specOnce drops what updates say of the spec: it stays as it was created.
	specOnce bool
	// deletion replaces the strategy of deletions. Nil: objects without finalizers go at once.
	deletion func(strategy) rest.RESTDeleteStrategy
	// guard refuses a write that its author may not make although the request was allowed. old is nil on create.
	guard func(ctx context.Context, g *guards, obj, old runtime.Object) error
	// authorize finds a field that the author of a write may not set to what it is, in an object that is valid otherwise.
	// It is asked about creates (old is nil) and updates of the main resource, whatever their verb, and makes them Invalid.
	authorize func(ctx context.Context, g *guards, obj, old runtime.Object) *field.Error
	// warn returns what to tell the author of a write in view of other objects.
	warn func(ctx context.Context, n *neighbours, obj runtime.Object) []string
}

func (r *resource) storageDirectory() string {
	if r.directory != "" {
		return r.directory
	}
	return r.name
}

// part is one field of a kind, reachable without knowing the kind.
type part struct {
	field string
	reset func(obj runtime.Object)
	copy  func(to, from runtime.Object)
	equal func(a, b runtime.Object) bool
}

// partOf describes the field called name that of points at.
func partOf[T runtime.Object, F any](name string, of func(T) *F) *part {
	return &part{
		field: name,
		reset: func(obj runtime.Object) {
			var zero F
			*of(obj.(T)) = zero
		},
		copy:  func(to, from runtime.Object) { *of(to.(T)) = *of(from.(T)) },
		equal: func(a, b runtime.Object) bool { return apiequality.Semantic.DeepEqual(of(a.(T)), of(b.(T))) },
	}
}

func specOf[T runtime.Object, F any](of func(T) *F) *part   { return partOf("spec", of) }
func statusOf[T runtime.Object, F any](of func(T) *F) *part { return partOf("status", of) }

// addToScheme registers the kind as its own internal version too, with its defaults and its selectable fields.
func (r *resource) addToScheme(scheme *runtime.Scheme, version schema.GroupVersion) error {
	scheme.AddKnownTypes(internalOf(version.Group), r.object.DeepCopyObject(), r.list.DeepCopyObject())
	if r.defaults != nil {
		defaults.Register(scheme, r.object, r.list, r.defaults)
	}
	if r.fields == nil {
		return nil
	}
	kinds, _, err := scheme.ObjectKinds(r.object)
	if err != nil {
		return err
	}
	return r.fields.Register(scheme, version.WithKind(kinds[0].Kind))
}

func internalOf(group string) schema.GroupVersion {
	return schema.GroupVersion{Group: group, Version: runtime.APIVersionInternal}
}
