package declared

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

var kindPattern = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`)

func (r reader) resource(f *form) *definition {
	d := &definition{every: defaultEvery, docs: map[string]string{}}
	if !f.present() {
		return d
	}
	d.line, d.column, d.digest = f.node.Line, f.node.Column, digestOf(f.node)
	readNames(f, d)
	d.every = f.duration("every", defaultEvery, quickest, slowest)
	d.maxAge = f.duration("maxAge", 0, d.every, 365*slowest)
	r.source(f, d)
	readMapping(f, d)
	readColumns(f, d)
	for i, n := range f.list("fieldSelectors") {
		field := f.element("fieldSelectors", i)
		if p, ok := objectPath(f.notes, n, field, f.notes.fieldText(n, field)); ok {
			d.selectors = append(d.selectors, p)
		}
	}
	f.entries("descriptions", func(in *form, key string) { d.docs[strings.TrimPrefix(key, ".")] = in.text(key) })
	d.schema = readSchema(f)
	f.done()
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

// groupProblems: groups without a dot belong to Kubernetes itself, and so do those under k8s.io.
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

// checked is a text for which problems finds none.
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
		if c.description == "" {
			c.description = c.name + "."
		}
		if n := in.ask("path"); n != nil {
			c.path, _ = objectPath(f.notes, n, in.field("path"), in.text("path"))
		}
		if strings.EqualFold(c.name, "Name") {
			in.wrong("name", "%q: the first column is the name already", c.name)
		}
		if slices.ContainsFunc(d.columns, func(other column) bool { return other.name == c.name }) {
			in.wrong("name", "%q: another column has this name", c.name)
		}
		in.done()
		d.columns = append(d.columns, c)
	}
}

// metadataPaths are the parts of the header that columns and selectors may show; labels and annotations take a key.
var metadataPaths = []string{".metadata.name", ".metadata.namespace", ".metadata.creationTimestamp"}

func (d *definition) String() string { return fmt.Sprintf("%s (%s:%d)", d.name(), d.file, d.line) }
