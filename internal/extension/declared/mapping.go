package declared

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxObjects bounds what one resource holds in memory.
const maxObjects = 100_000

// mapping makes objects of items.
type mapping struct {
	items             path
	name, namespace   expression
	namespaced        bool
	labels            []keyed
	annotations       []keyed
	creationTimestamp *expression
	fields            []field // none: the whole item is the status
}

// keyed is a label or an annotation.
type keyed struct {
	key  string
	from expression
}

// field is one field of the content.
type field struct {
	to   path
	from expression
	// kind is one of valueTypes, or empty: as it is in the item.
	kind string
	// otherwise is the value when the item has none. Nil: the field is left out.
	otherwise any
}

// oddities are what was left out of an answer, each told once with a count.
type oddities struct {
	order []string
	count map[string]int
	first map[string]string
}

func (o *oddities) note(what, example string) {
	if o.count == nil {
		o.count, o.first = map[string]int{}, map[string]string{}
	}
	if o.count[what] == 0 {
		o.order = append(o.order, what)
		o.first[what] = example
	}
	o.count[what]++
}

// texts are the oddities in words, in the order in which they were met.
func (o *oddities) texts() []string {
	var out []string
	for _, what := range o.order {
		out = append(out, fmt.Sprintf("%d items %s (the first is %s)", o.count[what], what, o.first[what]))
	}
	return out
}

// objects makes the objects of an answer, in the order of the answer. What makes no object is noted and left out.
func (m *mapping) objects(answer any) ([]Object, []string, error) {
	items, err := m.items.items(answer)
	if err != nil {
		return nil, nil, fmt.Errorf("items: %w", err)
	}
	if len(items) > maxObjects {
		return nil, nil, fmt.Errorf("items: %d of them; at most %d are served", len(items), maxObjects)
	}
	out := make([]Object, 0, len(items))
	seen := make(map[types.NamespacedName]bool, len(items))
	var odd oddities
	for _, it := range items {
		o, ok := m.object(it, &odd)
		if !ok {
			continue
		}
		id := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
		if seen[id] {
			odd.note("have the name of another and are not shown", id.String())
			continue
		}
		seen[id] = true
		out = append(out, o)
	}
	return out, odd.texts(), nil
}

func (m *mapping) object(it item, odd *oddities) (Object, bool) {
	var o Object
	raw, ok := m.name.text(it)
	if !ok {
		odd.note("have no name and are not shown", "number "+it.key)
		return o, false
	}
	o.Name = subdomainName(raw)
	if m.namespaced {
		namespace, ok := m.namespace.text(it)
		if !ok {
			odd.note("have no namespace and are not shown", fmt.Sprintf("%q", raw))
			return o, false
		}
		o.Namespace = labelName(namespace)
	}
	o.Labels = texts(m.labels, it, labelValue)
	o.Annotations = texts(m.annotations, it, func(s string) string { return s })
	if m.creationTimestamp != nil {
		if v, ok := m.creationTimestamp.value(it); ok {
			t, ok := asTime(v)
			if !ok {
				odd.note("have a creationTimestamp that is no time", fmt.Sprintf("%q", raw))
			} else {
				o.CreationTimestamp = metav1.NewTime(t.UTC())
			}
		}
	}
	o.Content = m.content(it, raw, odd)
	return o, true
}

func texts(from []keyed, it item, valid func(string) string) map[string]string {
	var out map[string]string
	for _, k := range from {
		text, ok := k.from.text(it)
		if !ok {
			continue
		}
		if out == nil {
			out = make(map[string]string, len(from))
		}
		out[k.key] = valid(text)
	}
	return out
}

func (m *mapping) content(it item, raw string, odd *oddities) map[string]any {
	if len(m.fields) == 0 {
		return map[string]any{"status": it.value}
	}
	content := map[string]any{}
	for _, f := range m.fields {
		v, ok := f.from.value(it)
		if ok && f.kind != "" {
			if v, ok = converted(v, f.kind); !ok {
				odd.note(fmt.Sprintf("have a %s that is no %s", f.to, f.kind), fmt.Sprintf("%q", raw))
			}
		}
		if !ok {
			v = f.otherwise
		}
		if v != nil {
			put(content, f.to, v)
		}
	}
	return content
}

// put sets a value at a path of names. Reading has made sure that no field stands where another has children.
func put(into map[string]any, to path, v any) {
	last := len(to) - 1
	for _, s := range to[:last] {
		next, ok := into[s.key].(map[string]any)
		if !ok {
			next = map[string]any{}
			into[s.key] = next
		}
		into = next
	}
	into[to[last].key] = v
}

// overlaps is whether one path leads through the other, so that both cannot be set.
func overlaps(a, b path) bool {
	n := min(len(a), len(b))
	return slices.Equal(a[:n], b[:n])
}
