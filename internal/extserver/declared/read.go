package declared

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"portico.dev/internal/pki"
)

const (
	// APIVersion and Kind are required in every document.
	APIVersion = "extension.portico.dev/v1alpha1"
	Kind       = "ResourceDefinitions"

	maxFileBytes = 1 << 20

	defaultEvery = 10 * time.Second
	minInterval  = time.Second
	maxInterval  = 24 * time.Hour
)

// reader parses files.
type reader struct {
	allowExec bool
	procRoot  string
}

// file parses one file. The definitions are only valid without mistakes.
func (r reader) file(name string) ([]*definition, MistakesError) {
	notes := &notes{file: name}
	data, err := pki.ReadFile(name, maxFileBytes, fmt.Errorf("larger than %d bytes; split it", maxFileBytes))
	if err != nil {
		notes.at(nil, "", "%v", err)
		return nil, notes.mistakes
	}
	var found []*definition
	documents := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document yaml.Node
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			notes.syntax(err)
			break
		}
		if err := checkAliases(&document); err != nil {
			notes.syntax(err)
			break
		}
		if len(document.Content) == 1 {
			found = append(found, r.document(notes, document.Content[0])...)
		}
	}
	if len(found) == 0 && len(notes.mistakes) == 0 {
		notes.at(nil, "", "declares nothing: it must begin with apiVersion: %s and kind: %s", APIVersion, Kind)
	}
	for i, d := range found {
		d.file = name
		for _, earlier := range found[:i] {
			if p := d.clash(earlier); p != "" {
				notes.mistakes = append(notes.mistakes, d.mistake(p))
			}
		}
	}
	return found, notes.mistakes
}

// checkAliases returns an error for aliases that contain themselves or that expand to an excessive size. It ignores type
// errors, which the reader reports in more detail.
func checkAliases(document *yaml.Node) error {
	var v any
	err := document.Decode(&v)
	var types *yaml.TypeError
	if errors.As(err, &types) {
		return nil
	}
	return err
}

func (r reader) document(notes *notes, n *yaml.Node) []*definition {
	f := newForm(notes, n, "")
	f.need("apiVersion", APIVersion)
	if v := f.text("apiVersion"); v != "" && v != APIVersion {
		f.wrong("apiVersion", "%q: must be %q", v, APIVersion)
	}
	f.need("kind", Kind)
	if v := f.text("kind"); v != "" && v != Kind {
		f.wrong("kind", "%q: must be %q", v, Kind)
	}
	f.need("resources", "a list of resources")
	var found []*definition
	for _, in := range f.forms("resources") {
		found = append(found, r.resource(in))
	}
	if n := f.values["resources"]; n != nil && n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		f.wrong("resources", "is empty; it needs one resource at least")
	}
	f.noteUnknownFields()
	return found
}

// clash returns why two definitions cannot both be served, or an empty string.
func (d *definition) clash(other *definition) string {
	same := d.gvr.GroupVersion() == other.gvr.GroupVersion()
	switch {
	case d.gvr == other.gvr:
		return fmt.Sprintf("%s of version %s is also declared at %s:%d", d.name(), d.gvr.Version, other.file, other.line)
	case same && d.kind == other.kind:
		return fmt.Sprintf("kind %s of %s is also that of %s, declared at %s:%d", d.kind, d.gvr.GroupVersion(), other.gvr.Resource, other.file, other.line)
	}
	return ""
}

// mistake returns a Mistake at the position of the definition.
func (d *definition) mistake(problem string) Mistake {
	return Mistake{File: d.file, Line: d.line, Column: d.column, Problem: problem}
}

// digestOf returns a hash of a definition that is independent of its comments and of the order of its fields.
func digestOf(n *yaml.Node) [32]byte {
	var v any
	if err := n.Decode(&v); err != nil {
		return [32]byte{} // the mistake has been noted
	}
	plain, err := yaml.Marshal(v)
	if err != nil {
		return [32]byte{}
	}
	return sha256.Sum256(plain)
}

var kindPattern = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`)

func (r reader) resource(f *form) *definition {
	d := &definition{every: defaultEvery, docs: map[string]string{}}
	if !f.present() {
		return d
	}
	d.line, d.column, d.digest = f.node.Line, f.node.Column, digestOf(f.node)
	readNames(f, d)
	d.every = f.duration("every", defaultEvery, minInterval, maxInterval)
	d.maxAge = f.duration("maxAge", 0, d.every, 365*maxInterval)
	r.source(f, d)
	readMapping(f, d)
	readColumns(f, d)
	for i, n := range f.list("fieldSelectors") {
		field := f.element("fieldSelectors", i)
		if p, ok := objectPath(f.notes, n, field, f.notes.fieldText(n, field)); ok {
			d.mapping.checkSet(f.notes, n, field, p)
			d.selectors = append(d.selectors, p)
		}
	}
	f.entries("descriptions", func(in *form, key string) { d.docs[strings.TrimPrefix(key, ".")] = in.text(key) })
	d.schema = readSchema(f)
	f.noteUnknownFields()
	return d
}

func readNames(f *form, d *definition) {
	for _, field := range []struct{ name, example string }{
		{"group", "stats.example.com"}, {"version", "v1"}, {"plural", "queues"}, {"kind", "Queue"},
	} {
		f.need(field.name, field.example)
	}
	d.gvr = schema.GroupVersionResource{
		Group:    f.checked("group", groupProblems),
		Version:  f.checked("version", validation.IsDNS1035Label),
		Resource: f.checked("plural", validation.IsDNS1035Label),
	}
	d.kind = f.checked("kind", func(s string) []string {
		if kindPattern.MatchString(s) {
			return nil
		}
		return []string{"must begin with a capital letter and hold letters and digits only, such as Queue"}
	})
	d.singular = f.checked("singular", validation.IsDNS1035Label)
	if d.singular == "" {
		d.singular = strings.ToLower(d.kind)
	}
	d.shortNames = f.checkedTexts("shortNames", validation.IsDNS1035Label)
	d.categories = f.checkedTexts("categories", validation.IsDNS1035Label)
	d.namespaced = f.boolean("namespaced")
}

// groupProblems requires a dot in the group, because groups without one belong to Kubernetes.
func groupProblems(s string) []string {
	problems := validation.IsDNS1123Subdomain(s)
	switch {
	case len(problems) > 0:
		return problems
	case !strings.Contains(s, "."):
		return []string{"must contain a dot, such as stats.example.com: groups without one belong to Kubernetes"}
	}
	return nil
}

// checked returns the string of a field and notes the problems that problems returns.
func (f *form) checked(name string, problems func(string) []string) string {
	text := f.text(name)
	if text == "" {
		return ""
	}
	if found := problems(text); len(found) > 0 {
		f.wrong(name, "%q: %s", text, strings.Join(found, ", "))
	}
	return text
}

func (f *form) checkedTexts(name string, problems func(string) []string) []string {
	texts := f.texts(name)
	for i, text := range texts {
		if found := problems(text); text != "" && len(found) > 0 {
			f.notes.at(resolved(f.values[name].Content[i]), f.element(name, i), "%q: %s", text, strings.Join(found, ", "))
		}
	}
	return texts
}

func readColumns(f *form, d *definition) {
	for _, in := range f.forms("columns") {
		in.need("name", "Depth")
		in.need("path", ".status.depth")
		c := column{name: in.text("name"), description: in.text("description"),
			kind: in.choice("type", valueTypes...), priority: int32(in.integer("priority", 0, 0, 1000))}
		c.description = cmp.Or(c.description, c.name+".")
		if n := in.value("path"); n != nil {
			var ok bool
			if c.path, ok = objectPath(f.notes, n, in.field("path"), in.text("path")); ok {
				d.mapping.checkSet(f.notes, n, in.field("path"), c.path)
			}
		}
		if strings.EqualFold(c.name, "Name") {
			in.wrong("name", "%q: the first column is the name already", c.name)
		}
		if slices.ContainsFunc(d.columns, func(other column) bool { return other.name == c.name }) {
			in.wrong("name", "%q: another column has this name", c.name)
		}
		in.noteUnknownFields()
		d.columns = append(d.columns, c)
	}
}

// checkSet notes a mistake if no field sets the value that a column or a selector refers to.
func (m *mapping) checkSet(notes *notes, n *yaml.Node, at string, shown path) {
	if len(m.fields) == 0 || shown[0].key == "metadata" || slices.ContainsFunc(m.fields, func(f field) bool { return overlaps(f.to, shown) }) {
		return
	}
	var set []string
	for _, f := range m.fields {
		set = append(set, f.to.String())
	}
	notes.at(n, at, "%q: no field of the object is there, only %s", shown, strings.Join(set, ", "))
}

// metadataPaths are the metadata fields that columns and selectors may refer to, in addition to single labels and
// annotations.
var metadataPaths = []string{".metadata.name", ".metadata.namespace", ".metadata.creationTimestamp"}

func (d *definition) String() string { return fmt.Sprintf("%s (%s:%d)", d.name(), d.file, d.line) }

func readMapping(f *form, d *definition) {
	m := &d.mapping
	m.namespaced = d.namespaced
	if n := f.value("items"); n != nil {
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
	case in.value("namespace") != nil:
		in.wrong("namespace", "the resource is not namespaced; say namespaced: true, or leave this out")
	}
	m.labels = in.keyed("labels", validation.IsQualifiedName)
	m.annotations = in.keyed("annotations", validation.IsQualifiedName)
	if in.value("creationTimestamp") != nil {
		e := in.expression("creationTimestamp")
		m.creationTimestamp = &e
	}
	m.fields = readFields(in)
	in.noteUnknownFields()
}

// readName reads the expression for the name. It is optional only for the tables of procfs.
func readName(f, in *form, d *definition) {
	if p, ok := d.origin.(*Procfs); ok && in.value("name") == nil {
		d.mapping.name, _ = parseExpression(Tables[p.Table]) // an unknown table has been noted
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
	if f.value(name) == nil {
		return expression{}
	}
	return f.notes.expressionOf(f.values[name], f.field(name), f.text(name))
}

func (s *notes) expressionOf(n *yaml.Node, field, text string) expression {
	if text == "" {
		return expression{} // not a string, which has been noted
	}
	e, err := parseExpression(text)
	if err != nil {
		s.at(n, field, "%v", err)
	}
	return e
}

// fieldExpression parses the value of a field. It rejects an unquoted word, because it is more likely a path without its dot
// than a constant. A constant can be quoted.
func (s *notes) fieldExpression(n *yaml.Node, field, text string) expression {
	quoted := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0
	if !quoted && bareWord.MatchString(text) {
		s.at(n, field, "%q: is this text for all objects; write .%s for what the item has there, or '%s' in quotes if the text is meant", text, text, text)
	}
	return s.expressionOf(n, field, text)
}

var bareWord = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*|\[[^\]]*\])*$`)

// fieldText returns the string of a node that is in a list or has an arbitrary key.
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
		n := in.value(key)
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
			one.from = in.notes.fieldExpression(n, at, in.textOf(n, at))
		}
		out = append(out, one)
	})
	return out
}

func readField(in *form, one field) field {
	in.need("from", ".depth")
	if n := in.value("from"); n != nil {
		one.from = in.notes.fieldExpression(n, in.field("from"), in.text("from"))
	}
	if in.value("type") != nil {
		one.kind = in.choice("type", valueTypes...)
	}
	if n := in.value("default"); n != nil {
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
	in.noteUnknownFields()
	return one
}

// plainValue converts a node to the JSON values that sources return.
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

// fieldPath parses the path of a field within an object. It must consist of names and must not be in the header.
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

// objectPath parses the path of a value that a column or a selector refers to.
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

// schemaTypes are the types of a structural schema.
var schemaTypes = []string{"object", "array", "string", "integer", "number", "boolean"}

// readSchema returns the schema of the resource's objects, nil if the field is absent.
func readSchema(f *form) json.RawMessage {
	n := f.value("schema")
	if n == nil {
		return nil
	}
	field := f.field("schema")
	checkSchema(f.notes, n, field)
	if in := newForm(&notes{}, n, field); in.text("type") != "object" {
		f.wrong("schema", "must have type: object, as it describes whole objects")
	}
	v, err := plainValue(n)
	if err != nil {
		f.wrong("schema", "%v", err)
		return nil
	}
	raw, err := json.Marshal(v)
	if err != nil {
		f.wrong("schema", "%v", err)
		return nil
	}
	return raw
}

// checkSchema notes mistakes that would break clients of OpenAPI. It ignores unknown keywords.
func checkSchema(notes *notes, n *yaml.Node, field string) {
	f := newForm(notes, n, field)
	kind := ""
	if f.value("type") != nil {
		kind = f.text("type")
		if kind != "" && !slices.Contains(schemaTypes, kind) {
			f.wrong("type", "%q: must be %s", kind, sentence(schemaTypes))
		}
	}
	if f.value("$ref") != nil {
		f.wrong("$ref", "references are not supported: write the schema out")
	}
	properties := f.form("properties")
	for _, key := range properties.keys {
		if v := properties.value(key.Value); v != nil {
			checkSchema(notes, v, properties.field(key.Value))
		}
	}
	if items := f.value("items"); items != nil {
		checkSchema(notes, items, f.field("items"))
	} else if kind == "array" {
		f.wrong("items", "required, since type is array")
	}
	if more := f.value("additionalProperties"); more != nil && more.Kind == yaml.MappingNode {
		checkSchema(notes, more, f.field("additionalProperties"))
	}
}
