package extension

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/respond"
)

// Definition names and describes a resource. T is the Go type of one object: a struct that embeds metav1.TypeMeta and
// metav1.ObjectMeta. It needs no generated code. If it has a generated Marshal method, as the types of k8s.io/metrics do, it
// is also served as protobuf.
type Definition[T any] struct {
	// Group, Version, Plural and Kind are required.
	Group, Version, Plural, Kind string
	// Singular is an alternative to Plural that kubectl accepts. Default: none, as in metrics-server.
	Singular string
	// ShortNames and Categories are additional names that kubectl accepts.
	ShortNames, Categories []string
	// Namespaced places the resource under namespaces/<namespace>/.
	Namespaced bool

	// PerCaller allows the provider to return different objects to different callers: Query.User is set, and callers share no
	// data. Otherwise Query.User is nil, so that a provider cannot leak the data of one caller to another by accident.
	PerCaller bool
	// PollInterval makes the resource watchable: while it has watches, the host lists at this interval and converts
	// differences to events. Default: 0, which disables the watch verb and the resourceVersion of lists. If the provider is a
	// Notifier, the resource is always watchable and the default is one minute.
	PollInterval time.Duration
	// MaxAge is the maximum age of a cached response. For a source that measures every fifteen seconds, one second makes no
	// difference, but a thousand clients then cost as much as one. Default: 0, which lists for every read. After a write
	// through the host, the reads of the same caller return its result regardless of MaxAge.
	MaxAge time.Duration

	// DryRun declares that the provider implements Query.DryRun. Otherwise a dry run is rejected with 400, so that it cannot
	// change anything by accident.
	DryRun bool
	// Nameless allows objects without a name, such as reviews.
	Nameless bool
	// Connects lists the subresources that a Connecter serves, such as "proxy".
	Connects []string

	// Columns are the Table columns. Default: Name and Created At. Ignored if the provider implements Tabler.
	Columns []Column[T]
	// Fields maps additional field selectors to the functions that return their values. metadata.name and metadata.namespace
	// are always supported.
	Fields map[string]func(*T) string

	// Docs maps dotted JSON paths to descriptions for OpenAPI. The path "" describes the kind.
	Docs map[string]string
	// Schema replaces the JSON schema, which is otherwise derived from T by reflection.
	Schema json.RawMessage
}

// Column is one column of a Table.
type Column[T any] struct {
	// Name is the header. kubectl converts it to upper case.
	Name string
	// Type is an OpenAPI type: string, integer, number, boolean, date.
	Type string
	// Format refines the type. "name" marks the column that names the row.
	Format string
	// Description is shown by tools such as kubectl explain.
	Description string
	// Priority 0 columns are always shown, higher ones only in wide output.
	Priority int32
	// Value returns the cell of one object.
	Value func(*T) any
}

// Resource is one hosted resource of one version, created by Of, or a complete group-version, created by Custom.
type Resource struct {
	// id distinguishes resources of the same name; see SetResources.
	id     *resourceID
	custom *CustomDefinition // nil unless made by Custom

	gvr  schema.GroupVersionResource
	kind schema.GroupVersionKind

	singular               string
	shortNames, categories []string
	namespaced, perCaller  bool
	poll, maxAge           time.Duration
	dryRun, nameless       bool
	subresources           []string
	docs                   map[string]string
	schema                 json.RawMessage

	source   source
	notifier Notifier // nil if the provider is not a Notifier
	tellsAll bool     // the provider reports every change
}

// changed returns a channel that is closed at the next change that the provider reports, or nil if the provider is not a
// Notifier.
func (s Resource) changed() <-chan struct{} {
	if s.notifier == nil {
		return nil
	}
	return s.notifier.Changed()
}

// GroupVersion returns the group-version of the resource.
func (s Resource) GroupVersion() schema.GroupVersion { return s.gvr.GroupVersion() }

// GroupVersionResource returns the name of the resource.
func (s Resource) GroupVersionResource() schema.GroupVersionResource { return s.gvr }

// WithSchema returns a copy of the resource with a different schema. SetResources treats both as the same resource, so that
// watches continue. It is for programs that discover the schema of objects while they serve them.
func (s Resource) WithSchema(raw json.RawMessage) Resource {
	s.schema = raw
	return s
}

func (s Resource) watchable() bool { return s.poll > 0 }

// Object is the constraint for *T. Any struct that embeds metav1.TypeMeta and metav1.ObjectMeta satisfies it.
type Object[T any] interface {
	*T
	object
}

// Of returns the Resource of a definition and its provider.
func Of[T any, P Object[T]](d Definition[T], provider Lister[T]) Resource {
	notifier, tells := provider.(Notifier)
	if tells {
		setDefault(&d.PollInterval, time.Minute)
	}
	return Resource{
		gvr:          schema.GroupVersionResource{Group: d.Group, Version: d.Version, Resource: d.Plural},
		kind:         schema.GroupVersionKind{Group: d.Group, Version: d.Version, Kind: d.Kind},
		singular:     d.Singular,
		shortNames:   d.ShortNames,
		categories:   d.Categories,
		namespaced:   d.Namespaced,
		perCaller:    d.PerCaller,
		id:           &resourceID{},
		poll:         d.PollInterval,
		maxAge:       d.MaxAge,
		dryRun:       d.DryRun,
		nameless:     d.Nameless,
		subresources: d.Connects,
		docs:         d.Docs,
		schema:       d.Schema,
		source:       typedResource[T, P]{definition: d, provider: provider},
		notifier:     notifier,
		tellsAll:     tellsAll(provider),
	}
}

func (s Resource) validate() error {
	if s.custom != nil {
		return s.custom.validate()
	}
	switch {
	case s.source == nil:
		return errors.New("a resource must be made by extension.Of or extension.Custom")
	case s.gvr.Group == "" || s.gvr.Version == "" || s.gvr.Resource == "" || s.kind.Kind == "":
		return fmt.Errorf("resource %q: group, version, plural and kind are required", s.gvr)
	case s.schema != nil && !json.Valid(s.schema):
		return fmt.Errorf("resource %q: the supplied schema is not JSON", s.gvr)
	case len(s.subresources) > 0 && !s.source.can().connect:
		return fmt.Errorf("resource %q: Connects names subresources, but the provider has no method Connect", s.gvr)
	}
	return nil
}

// resourceID is not empty, because pointers to distinct zero-size values may be equal.
type resourceID struct{ _ byte }

// verbs returns the verbs for discovery.
func (s Resource) verbs() metav1.Verbs {
	can := s.source.can()
	var verbs metav1.Verbs
	for _, v := range []struct {
		verb string
		can  bool
	}{
		{"create", can.create}, {"delete", can.delete}, {"deletecollection", can.delete}, {"get", true}, {"list", true},
		{"patch", can.update}, {"update", can.update}, {"watch", s.watchable()},
	} {
		if v.can {
			verbs = append(verbs, v.verb)
		}
	}
	return verbs
}

// CustomDefinition defines a complete group-version. It is for paths that are not plain resources, such as
// namespaces/<namespace>/pods/*/<metric> of custom.metrics.k8s.io.
type CustomDefinition struct {
	GroupVersion schema.GroupVersion
	// Resources returns the resources for discovery. It is called for every discovery request, so it must be fast. The result
	// may change.
	Resources func() []metav1.APIResource
	// Serve serves all requests below the group-version, with any method. The host has authenticated the caller
	// (apirequest.UserFrom), authorized the request and applied the limits. Use WriteObject and WriteError to respond as the
	// host does.
	Serve func(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo)
	// OpenAPI maps definition names to the schemas of the kinds. References between them may use the syntax of either OpenAPI
	// version. Optional.
	OpenAPI map[string]json.RawMessage
}

// Custom returns a Resource for a complete group-version, which cannot be combined with other resources of the group-version.
func Custom(d CustomDefinition) Resource {
	return Resource{id: &resourceID{}, gvr: d.GroupVersion.WithResource(""), custom: &d}
}

func (d *CustomDefinition) validate() error {
	switch {
	case d.GroupVersion.Group == "" || d.GroupVersion.Version == "":
		return fmt.Errorf("custom group-version %q: group and version are required", d.GroupVersion)
	case d.Resources == nil || d.Serve == nil:
		return fmt.Errorf("custom group-version %q: Resources and Serve are required", d.GroupVersion)
	}
	return nil
}

// WriteObject writes o in the encoding that the client requested: JSON, YAML, or protobuf if the type supports it. o must
// have its kind set. If no accepted encoding is available, WriteObject writes a 406.
func WriteObject(w http.ResponseWriter, r *http.Request, code int, o runtime.Object) {
	_, protobuf := o.(marshaler)
	offer := offer{verb: "get", protobuf: protobuf, wholeOnly: true}
	rep, ok := offer.negotiate(r.Header.Get("Accept"))
	if !ok {
		WriteError(w, r, respond.NotAcceptable(offer.acceptable()...))
		return
	}
	doc := document{kind: o.GetObjectKind().GroupVersionKind(), value: o, message: func() ([]byte, error) { return marshal(o) }}
	var body bytes.Buffer
	if err := doc.encode(&body, rep.media); err != nil {
		WriteError(w, r, err)
		return
	}
	writeBody(w, r, code, rep.contentType(), "", body.Bytes())
}

// WriteError writes err as a Status: unchanged if err carries a Status, 404 for ErrNotFound, and 500 for any other error.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, ErrNotFound) {
		err = notFound(r)
	}
	respond.Error(w, r, err)
}
