package extension

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Definition says what a resource is called and how it shows. T is the Go type of one object: a struct that embeds
// metav1.TypeMeta and metav1.ObjectMeta. It needs no generated code; when it has a generated Marshal method, as the
// types of k8s.io/metrics have, it is served in protobuf too.
type Definition[T any] struct {
	// Group, Version, Plural and Kind are required.
	Group, Version, Plural, Kind string
	// Singular is the name that kubectl accepts besides Plural. Default: none, as metrics-server answers.
	Singular string
	// ShortNames and Categories are further names that kubectl accepts.
	ShortNames, Categories []string
	// Namespaced resources live under namespaces/<namespace>/.
	Namespaced bool

	// PerCaller resources show each caller another list: Query.User is set, and nothing is shared between callers.
	// Without it Query.User stays nil, so that a provider cannot leak one caller's view to another by accident.
	PerCaller bool
	// PollInterval makes the resource watchable: while somebody watches, List is asked this often and differences
	// become events. Zero: no watch verb, and lists carry no resourceVersion.
	PollInterval time.Duration

	// Columns are the Table columns. Default: Name and Created At. A provider that implements Tabler decides itself.
	Columns []Column[T]
	// Fields are further field selectors, by label. metadata.name and metadata.namespace always work.
	Fields map[string]func(*T) string

	// Docs are descriptions for OpenAPI by dotted JSON path; "" describes the kind.
	Docs map[string]string
	// Schema replaces the JSON schema that is otherwise derived from T by reflection.
	Schema json.RawMessage
}

// Column is one column of the Table form.
type Column[T any] struct {
	// Name is the header, in the spelling that kubectl will put in upper case.
	Name string
	// Type is an OpenAPI type: string, integer, number, boolean, date.
	Type string
	// Format narrows the type; "name" marks the column that names the row.
	Format string
	// Description is what kubectl explain-like tools show.
	Description string
	// Priority 0 shows always, above 0 only in wide output.
	Priority int32
	// Value is the cell of one object.
	Value func(*T) any
}

// Resource is one hosted resource of one version, made by Of.
type Resource struct {
	gvr  schema.GroupVersionResource
	kind schema.GroupVersionKind

	singular               string
	shortNames, categories []string
	namespaced, perCaller  bool
	poll                   time.Duration
	docs                   map[string]string
	schema                 json.RawMessage

	source source
}

// GroupVersion is where the resource is served.
func (s Resource) GroupVersion() schema.GroupVersion { return s.gvr.GroupVersion() }

// GroupVersionResource names the resource.
func (s Resource) GroupVersionResource() schema.GroupVersionResource { return s.gvr }

func (s Resource) watchable() bool { return s.poll > 0 }

func (s Resource) verbs() metav1.Verbs {
	if s.watchable() {
		return metav1.Verbs{"get", "list", "watch"}
	}
	return metav1.Verbs{"get", "list"}
}

// Object is what *T must be: any struct that embeds metav1.TypeMeta and metav1.ObjectMeta is one.
type Object[T any] interface {
	*T
	object
}

// Of makes a Resource of a definition and its provider.
func Of[T any, P Object[T]](d Definition[T], provider Lister[T]) Resource {
	return Resource{
		gvr:        schema.GroupVersionResource{Group: d.Group, Version: d.Version, Resource: d.Plural},
		kind:       schema.GroupVersionKind{Group: d.Group, Version: d.Version, Kind: d.Kind},
		singular:   d.Singular,
		shortNames: d.ShortNames,
		categories: d.Categories,
		namespaced: d.Namespaced,
		perCaller:  d.PerCaller,
		poll:       d.PollInterval,
		docs:       d.Docs,
		schema:     d.Schema,
		source:     hosted[T, P]{definition: d, provider: provider},
	}
}

func (s Resource) validate() error {
	switch {
	case s.source == nil:
		return errors.New("a resource must be made by extension.Of")
	case s.gvr.Group == "" || s.gvr.Version == "" || s.gvr.Resource == "" || s.kind.Kind == "":
		return fmt.Errorf("resource %q: group, version, plural and kind are required", s.gvr)
	case s.schema != nil && !json.Valid(s.schema):
		return fmt.Errorf("resource %q: the supplied schema is not JSON", s.gvr)
	}
	return nil
}

// Lister is all that a provider must implement.
type Lister[T any] interface {
	// List returns the objects that q asks for; it may return more, the host filters. An error that carries a Status
	// (k8s.io/apimachinery/pkg/api/errors) reaches the client as it is, any other as 500. The host does not change
	// what it is given, so a provider may return a slice that it keeps.
	List(ctx context.Context, q Query) ([]T, error)
}

// ListFunc makes a Lister of a function.
type ListFunc[T any] func(ctx context.Context, q Query) ([]T, error)

// List calls f.
func (f ListFunc[T]) List(ctx context.Context, q Query) ([]T, error) { return f(ctx, q) }

// Getter is implemented by providers that find one object more cheaply than by listing.
type Getter[T any] interface {
	// Get returns the object that q.Namespace and q.Name name, or an error for which ErrNotFound holds (errors.Is).
	Get(ctx context.Context, q Query) (T, error)
}

// Tabler is implemented by providers whose columns depend on what they list.
type Tabler[T any] interface {
	// Columns returns the columns for items, which may be empty.
	Columns(items []T) []Column[T]
}

// ErrNotFound is what Get returns when there is no such object. The host makes a Status of it.
var ErrNotFound = errors.New("not found")
