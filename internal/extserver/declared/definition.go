package declared

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"

	"portico.dev/pkg/extension"
)

// origin is a data source.
type origin interface {
	// Fetch returns the current data as JSON values. It is bounded by ctx and by the size limit of the source.
	Fetch(ctx context.Context) (any, error)
}

// definition is a resource as declared in a file.
type definition struct {
	gvr                    schema.GroupVersionResource
	kind, singular         string
	shortNames, categories []string
	namespaced             bool

	every, timeout, maxAge time.Duration
	origin                 origin
	originKind             string
	mapping                mapping
	columns                []column
	selectors              []path
	schema                 json.RawMessage // nil if inferred
	docs                   map[string]string

	file         string
	line, column int
	digest       [32]byte // hash of the declaration
}

// column is one column of a Table.
type column struct {
	name, kind, description string
	priority                int32
	path                    path
}

// name returns the group and resource, for logs, warnings, metrics and checks.
func (d *definition) name() string { return d.gvr.GroupResource().String() }

// Watches poll the fetched data, not the source, and can therefore poll more often than the source is queried.
const (
	minPollInterval = 200 * time.Millisecond
	maxPollInterval = 5 * time.Second
)

// resource returns the definition as an extension.Resource that is served by provider.
func (d *definition) resource(provider extension.Lister[Object]) extension.Resource {
	look := min(max(d.every/4, minPollInterval), maxPollInterval)
	out := extension.Definition[Object]{
		Group: d.gvr.Group, Version: d.gvr.Version, Plural: d.gvr.Resource, Kind: d.kind, Singular: d.singular,
		ShortNames: d.shortNames, Categories: d.categories, Namespaced: d.namespaced,
		PollInterval: look, MaxAge: look, Docs: d.docs, Schema: d.schema,
		Columns: d.tableColumns(), Fields: map[string]func(*Object) string{},
	}
	for _, p := range d.selectors {
		out.Fields[p.String()[1:]] = func(o *Object) string {
			v, ok := o.at(p)
			if !ok {
				return ""
			}
			return textOf(v)
		}
	}
	return extension.Of(out, provider)
}

func (d *definition) tableColumns() []extension.Column[Object] {
	out := []extension.Column[Object]{{Name: "Name", Type: "string", Format: "name", Description: "Name of the object.",
		Value: func(o *Object) any { return o.Name }}}
	for _, c := range d.columns {
		out = append(out, extension.Column[Object]{Name: c.name, Type: c.kind, Description: c.description, Priority: c.priority,
			Value: func(o *Object) any { return c.cell(o) }})
	}
	if d.mapping.creationTimestamp != nil {
		out = append(out, extension.Column[Object]{Name: "Age", Type: "date", Description: "How long ago the object came to be.",
			Value: func(o *Object) any { return age(o.CreationTimestamp.Time) }})
	}
	return out
}

// cell returns the value of the column for an object. It returns nil, which is an empty cell, if the object has no value.
func (c column) cell(o *Object) any {
	v, ok := o.at(c.path)
	if !ok {
		return nil
	}
	if c.kind == "date" {
		t, ok := asTime(v)
		if !ok {
			return fmt.Sprint(v)
		}
		return age(t)
	}
	if v, ok = converted(v, c.kind); !ok {
		return nil
	}
	return v
}

// age formats the time since t as kubectl does. The server formats it, as kube-apiserver does for the columns of custom
// resources.
func age(t time.Time) any {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t))
}
