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

// origin is a source of answers.
type origin interface {
	// Fetch returns one answer, made of what JSON has, within ctx's time and a bound of its own.
	Fetch(ctx context.Context) (any, error)
}

// definition is one resource as a file declares it.
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
	schema                 json.RawMessage // nil: inferred
	docs                   map[string]string

	file         string
	line, column int
	digest       [32]byte // of what was written
}

// column is one column of the Table form.
type column struct {
	name, kind, description string
	priority                int32
	path                    path
}

// name is what people call the resource: in logs, warnings, metrics and checks.
func (d *definition) name() string { return d.gvr.GroupResource().String() }

// Watchers look at what has been fetched, not at the source, so they may look more often than it is asked.
const (
	minPollInterval = 200 * time.Millisecond
	maxPollInterval = 5 * time.Second
)

// resource is the definition as the host takes it, with its objects from provider.
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

// cell is what the column shows of an object: nil, an empty cell, where there is nothing to show.
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

// age is a time as kubectl shows times: by how long ago it was. The server writes it, as kube-apiserver does for the
// columns of custom resources.
func age(t time.Time) any {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t))
}
