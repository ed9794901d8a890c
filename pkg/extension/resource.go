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
	// become events. Zero: no watch verb, and lists carry no resourceVersion; for a provider that is a Notifier, which is
	// watchable anyway, a minute.
	PollInterval time.Duration
	// MaxAge is how old an answer may be that is given without asking List again. A source that measures every fifteen
	// seconds loses nothing by one second, and a thousand clients then cost as much as one. Zero: List is asked for every
	// read. What is written through the host shows at once, whatever MaxAge is, to who wrote it.
	MaxAge time.Duration

	// DryRun says that the provider heeds Query.DryRun. Without it a dry run is refused, so that nobody's trial becomes
	// real by accident.
	DryRun bool
	// Nameless lets objects be created without a name: reviews and requests, which are answers more than objects.
	Nameless bool
	// Connects are the subresources that a Connecter serves, such as "proxy".
	Connects []string

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

// Resource is one hosted resource of one version, made by Of, or a whole group-version, made by Custom.
type Resource struct {
	// id tells a resource that is hosted on from another of the same name (see SetResources).
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
	notifier Notifier // nil: the provider tells of no change
	tellsAll bool     // nothing changes without a notice
}

// changed is closed at the next change of which the provider tells; nil when it tells of none.
func (s Resource) changed() <-chan struct{} {
	if s.notifier == nil {
		return nil
	}
	return s.notifier.Changed()
}

// GroupVersion is where the resource is served.
func (s Resource) GroupVersion() schema.GroupVersion { return s.gvr.GroupVersion() }

// GroupVersionResource names the resource.
func (s Resource) GroupVersionResource() schema.GroupVersionResource { return s.gvr }

// WithSchema is the same resource with another schema: to SetResources it is no other one, so that its watches go on. It
// is for who learns what objects look like while serving them.
func (s Resource) WithSchema(raw json.RawMessage) Resource {
	s.schema = raw
	return s
}

func (s Resource) watchable() bool { return s.poll > 0 }

// Object is what *T must be: any struct that embeds metav1.TypeMeta and metav1.ObjectMeta is one.
type Object[T any] interface {
	*T
	object
}

// Of makes a Resource of a definition and its provider.
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

// resourceID is not empty: pointers to empty values may all be the same.
type resourceID struct{ _ byte }

// verbs are what discovery says can be done.
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

// CustomDefinition hosts a whole group-version whose paths are not plain resources, such as custom.metrics.k8s.io with
// its namespaces/<namespace>/pods/*/<metric>.
type CustomDefinition struct {
	GroupVersion schema.GroupVersion
	// Resources is what discovery lists. It is asked at every discovery request, so it must be quick, and it may change.
	Resources func() []metav1.APIResource
	// Serve answers what lies below the group-version, all methods. Who asks (apirequest.UserFrom), whether they may and
	// the limits have been seen to. WriteObject and WriteError answer as the rest of the host does.
	Serve func(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo)
	// OpenAPI are the schemas of the kinds, by definition name. They may refer to each other in the spelling of either
	// OpenAPI version. Optional.
	OpenAPI map[string]json.RawMessage
}

// Custom makes a Resource of a whole group-version. It may not be hosted together with others of that group-version.
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

// WriteObject answers with o in the encoding that the client asked for: JSON, YAML, or protobuf when the type has it. o
// must say its kind. What cannot be had is answered 406.
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

// WriteError answers with err as a Status: one that carries a Status as it is, ErrNotFound as 404, any other as 500.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, ErrNotFound) {
		err = notFound(r)
	}
	respond.Error(w, r, err)
}
