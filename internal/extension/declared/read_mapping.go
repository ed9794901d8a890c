package declared

import (
	"encoding/json"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"
)

func readMapping(f *form, d *definition) {
	m := &d.mapping
	m.namespaced = d.namespaced
	if n := f.ask("items"); n != nil {
		var err error
		if m.items, err = parsePath(f.text("items")); err != nil {
			f.wrong("items", "%v", err)
		}
	}
	in := f.form("object")
	readName(f, in, d)
	switch {
	case d.namespaced:
		if in.present() {
			in.need("namespace", ".team, or a name such as default that is the same for all")
		}
		m.namespace = in.expression("namespace")
	case in.ask("namespace") != nil:
		in.wrong("namespace", "the resource is not namespaced; say namespaced: true, or leave this out")
	}
	m.labels = in.keyed("labels", validation.IsQualifiedName)
	m.annotations = in.keyed("annotations", validation.IsQualifiedName)
	if in.ask("creationTimestamp") != nil {
		e := in.expression("creationTimestamp")
		m.creationTimestamp = &e
	}
	m.fields = readFields(in)
	in.done()
}

// readName: what names an item is known for the tables of procfs and must be said for everything else.
func readName(f, in *form, d *definition) {
	if p, ok := d.origin.(*Procfs); ok && in.ask("name") == nil {
		d.mapping.name, _ = parseExpression(Tables[p.Table]) // a table that is not known has been noted
		return
	}
	if !in.present() {
		f.wrong("object", "required, such as object: {name: .id}")
		return
	}
	in.need("name", ".id, "+keyPath+` for the key of a mapping, or "{.host}-{.port}"`)
	d.mapping.name = in.expression("name")
}

func (f *form) expression(name string) expression {
	if f.ask(name) == nil {
		return expression{}
	}
	return f.notes.expressionOf(f.values[name], f.field(name), f.text(name))
}

func (s *notes) expressionOf(n *yaml.Node, field, text string) expression {
	if text == "" {
		return expression{} // not a text, which has been noted
	}
	e, err := parseExpression(text)
	if err != nil {
		s.at(n, field, "%v", err)
	}
	return e
}

// fieldText is the text of a node that stands in a list or under a name that the writer has chosen.
func (s *notes) fieldText(n *yaml.Node, field string) string {
	return (&form{notes: s}).textOf(n, field)
}

func (f *form) keyed(name string, problems func(string) []string) []keyed {
	var out []keyed
	f.entries(name, func(in *form, key string) {
		if found := problems(key); len(found) > 0 {
			in.notes.at(in.values[key], in.field(key), "key %q: %s", key, strings.Join(found, ", "))
		}
		out = append(out, keyed{key: key, from: in.expression(key)})
	})
	return out
}

func readFields(object *form) []field {
	var out []field
	object.entries("fields", func(in *form, key string) {
		n := in.ask(key)
		if n == nil {
			in.wrong(key, "must be a path such as .depth, or a mapping with from and type")
			return
		}
		at := in.field(key)
		to, ok := fieldPath(in.notes, n, at, key)
		if !ok {
			return
		}
		if i := slices.IndexFunc(out, func(other field) bool { return overlaps(other.to, to) }); i >= 0 {
			in.wrong(key, "cannot be set together with %s: one contains the other", out[i].to)
		}
		one := field{to: to}
		if n.Kind == yaml.MappingNode {
			one = readField(newForm(in.notes, n, at), one)
		} else {
			one.from = in.notes.expressionOf(n, at, in.textOf(n, at))
		}
		out = append(out, one)
	})
	return out
}

func readField(in *form, one field) field {
	in.need("from", ".depth")
	one.from = in.expression("from")
	if in.ask("type") != nil {
		one.kind = in.choice("type", valueTypes...)
	}
	if n := in.ask("default"); n != nil {
		v, err := plainValue(n)
		if err != nil {
			in.wrong("default", "%v", err)
		}
		if one.kind != "" && err == nil {
			var ok bool
			if v, ok = converted(v, one.kind); !ok {
				in.wrong("default", "%s: is no %s", kindOf(n), one.kind)
			}
		}
		one.otherwise = v
	}
	in.done()
	return one
}

// plainValue is a node as sources give values.
func plainValue(n *yaml.Node) (any, error) {
	var v any
	if err := n.Decode(&v); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return JSON(raw)
}

// fieldPath is where in an object a field goes: names only, and not into the header.
func fieldPath(notes *notes, n *yaml.Node, field, text string) (path, bool) {
	if !strings.HasPrefix(text, ".") && !strings.HasPrefix(text, "[") {
		text = "." + text
	}
	p, err := parsePath(text)
	switch {
	case err != nil:
		notes.at(n, field, "%v", err)
	case len(p) == 0 || slices.ContainsFunc(p, func(s step) bool { return s.key == "" }):
		notes.at(n, field, "%q: must be names with dots between them, such as status.depth", text)
	case slices.Contains(headerFields, p[0].key):
		notes.at(n, field, "%q belongs to the header: use object.name, object.namespace, object.labels, object.annotations or object.creationTimestamp", p[0].key)
	default:
		return p, true
	}
	return nil, false
}

// objectPath is a place in an object that a column or a selector shows.
func objectPath(notes *notes, n *yaml.Node, field, text string) (path, bool) {
	if text == "" {
		return nil, false
	}
	if !strings.HasPrefix(text, ".") && !strings.HasPrefix(text, "$") && !strings.HasPrefix(text, "[") {
		text = "." + text
	}
	p, err := parsePath(text)
	switch {
	case err != nil:
		notes.at(n, field, "%v", err)
		return nil, false
	case len(p) == 0 || p.many():
		notes.at(n, field, "%q: must lead to one value, such as .status.depth", text)
		return nil, false
	case p[0].key == "metadata" && !shownMetadata(p):
		notes.at(n, field, "%q: of the metadata %s, .metadata.labels.<key> or .metadata.annotations.<key> can be shown", text, strings.Join(metadataPaths, ", "))
		return nil, false
	}
	return p, true
}

func shownMetadata(p path) bool {
	if len(p) == 3 && (p[1].key == "labels" || p[1].key == "annotations") {
		return p[2].key != ""
	}
	return slices.Contains(metadataPaths, p.String())
}
