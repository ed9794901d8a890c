package declared

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// maxObjects limits the objects of one resource.
const maxObjects = 100_000

// mapping converts items to objects.
type mapping struct {
	items             path
	name, namespace   expression
	namespaced        bool
	labels            []keyed
	annotations       []keyed
	creationTimestamp *expression
	fields            []field // if empty, status is the entire item
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
	// kind is one of valueTypes. If empty, the value is not converted.
	kind string
	// otherwise is the value if the item has none. If nil, the field is omitted.
	otherwise any
}

// omissions counts the omitted parts of a response by their description.
type omissions struct {
	order []string
	count map[string]int
	first map[string]string
}

func (o *omissions) note(what, example string) {
	if o.count == nil {
		o.count, o.first = map[string]int{}, map[string]string{}
	}
	if o.count[what] == 0 {
		o.order = append(o.order, what)
		o.first[what] = example
	}
	o.count[what]++
}

// texts returns the descriptions in order of their first occurrence.
func (o *omissions) texts() []string {
	var out []string
	for _, what := range o.order {
		out = append(out, fmt.Sprintf("%d items %s (the first is %s)", o.count[what], what, o.first[what]))
	}
	return out
}

// objects returns the objects of a response in its order. Items that cannot be converted are omitted and noted.
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
	var omitted omissions
	for _, it := range items {
		o, ok := m.object(it, &omitted)
		if !ok {
			continue
		}
		id := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
		if seen[id] {
			omitted.note("have the name of another and are not shown", id.String())
			continue
		}
		seen[id] = true
		out = append(out, o)
	}
	return out, omitted.texts(), nil
}

func (m *mapping) object(it item, omitted *omissions) (Object, bool) {
	var o Object
	raw, ok := m.name.text(it)
	if !ok {
		omitted.note("have no name and are not shown", "number "+it.key)
		return o, false
	}
	o.Name = subdomainName(raw)
	if m.namespaced {
		namespace, ok := m.namespace.text(it)
		if !ok {
			omitted.note("have no namespace and are not shown", fmt.Sprintf("%q", raw))
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
				omitted.note("have a creationTimestamp that is no time", fmt.Sprintf("%q", raw))
			} else {
				o.CreationTimestamp = metav1.NewTime(t.UTC())
			}
		}
	}
	o.Content = m.content(it, raw, omitted)
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

func (m *mapping) content(it item, raw string, omitted *omissions) map[string]any {
	if len(m.fields) == 0 {
		return map[string]any{"status": it.value}
	}
	content := map[string]any{}
	for _, f := range m.fields {
		v, ok := f.from.value(it)
		if ok && f.kind != "" {
			if v, ok = converted(v, f.kind); !ok {
				omitted.note(fmt.Sprintf("have a %s that is no %s", f.to, f.kind), fmt.Sprintf("%q", raw))
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

// put sets a value at a path of names. readFields has verified that fields do not overlap.
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

// overlaps reports whether one path is a prefix of the other, so that both cannot be set.
func overlaps(a, b path) bool {
	n := min(len(a), len(b))
	return slices.Equal(a[:n], b[:n])
}

// Object is an object of a declared resource: the common metadata and the content of the mapping. Content is shared between
// responses and immutable.
type Object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Content contains all fields except for the header.
	Content map[string]any `json:"-"`
}

// headerFields are the fields that are not content.
var headerFields = []string{"apiVersion", "kind", "metadata"}

// header contains the common fields of an Object.
type header struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
}

// MarshalJSON encodes the header and the content as one JSON object.
func (o Object) MarshalJSON() ([]byte, error) {
	head, err := json.Marshal(header{o.TypeMeta, o.ObjectMeta})
	if err != nil || len(o.Content) == 0 {
		return head, err
	}
	content, err := json.Marshal(o.Content)
	if err != nil {
		return nil, fmt.Errorf("content of %q: %w", o.Name, err)
	}
	// Both are non-empty objects, because metadata is always present.
	out := make([]byte, 0, len(head)+len(content))
	out = append(append(out, head[:len(head)-1]...), ',')
	return append(out, content[1:]...), nil
}

// UnmarshalJSON decodes the output of MarshalJSON.
func (o *Object) UnmarshalJSON(data []byte) error {
	var head header
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	var content map[string]any
	if err := json.Unmarshal(data, &content); err != nil {
		return err
	}
	for _, field := range headerFields {
		delete(content, field)
	}
	*o = Object{TypeMeta: head.TypeMeta, ObjectMeta: head.ObjectMeta, Content: content}
	return nil
}

// at returns the value at a path of the object, including its metadata.
func (o *Object) at(p path) (any, bool) {
	if len(p) == 0 || p[0].key != "metadata" {
		return p.find(o.Content)
	}
	switch text := p[1:].String(); text {
	case ".name":
		return o.Name, true
	case ".namespace":
		return o.Namespace, o.Namespace != ""
	case ".creationTimestamp":
		return o.CreationTimestamp.UTC().Format(timeLayout), !o.CreationTimestamp.IsZero()
	}
	if len(p) != 3 {
		return nil, false
	}
	from := o.Labels
	if p[1].key == "annotations" {
		from = o.Annotations
	}
	v, ok := from[p[2].key]
	return v, ok
}

// subdomainName returns a valid object name for raw. A valid name is returned unchanged. Otherwise invalid characters are
// replaced and a digest of raw is appended, so that "a b" and "a/b" get different names, and each name is stable regardless
// of other objects.
func subdomainName(raw string) string {
	if len(validation.IsDNS1123Subdomain(raw)) == 0 {
		return raw
	}
	return digested(raw, ".-", validation.DNS1123SubdomainMaxLength)
}

// labelName is like subdomainName for namespaces, which are DNS labels.
func labelName(raw string) string {
	if len(validation.IsDNS1123Label(raw)) == 0 {
		return raw
	}
	return digested(raw, "-", validation.DNS1123LabelMaxLength)
}

func digested(raw, punctuation string, most int) string {
	sum := sha256.Sum256([]byte(raw))
	suffix := hex.EncodeToString(sum[:4])
	kept := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', strings.ContainsRune(punctuation, c):
			return c
		case c >= 'A' && c <= 'Z':
			return c - 'A' + 'a'
		}
		return '-'
	}, raw)
	// Every label of a subdomain must begin and end with a letter or a digit.
	var labels []string
	for label := range strings.SplitSeq(kept, ".") {
		if label = strings.Trim(label, "-"); label != "" {
			labels = append(labels, label)
		}
	}
	kept = strings.Join(labels, ".")
	if room := most - len(suffix) - 1; len(kept) > room {
		kept = strings.TrimRight(kept[:room], ".-")
	}
	if kept == "" {
		return suffix
	}
	return kept + "-" + suffix
}

// labelValue returns a valid label value, in which underscores replace invalid characters.
func labelValue(raw string) string {
	if len(validation.IsValidLabelValue(raw)) == 0 {
		return raw
	}
	kept := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' {
			return c
		}
		return '_'
	}, raw)
	kept = kept[:min(len(kept), validation.LabelValueMaxLength)]
	return strings.Trim(kept, "-_.")
}

const timeLayout = time.RFC3339

// valueTypes are the types of fields and columns.
var valueTypes = []string{"string", "integer", "number", "boolean", "date"}

// converted converts v to one of valueTypes. It returns false if that is not possible.
func converted(v any, kind string) (any, bool) {
	switch kind {
	case "string":
		return textOf(v), true
	case "integer":
		f, ok := asNumber(v)
		if i, whole := v.(int64); whole {
			return i, true
		}
		return int64(f), ok && f == math.Trunc(f) && math.Abs(f) < 1<<62
	case "number":
		return asNumberValue(v)
	case "boolean":
		if b, ok := v.(bool); ok {
			return b, true
		}
		b, err := strconv.ParseBool(textOf(v))
		return b, err == nil
	case "date":
		t, ok := asTime(v)
		return t.UTC().Format(timeLayout), ok
	}
	return v, true
}

func asNumberValue(v any) (any, bool) {
	if i, ok := v.(int64); ok {
		return i, true
	}
	return asNumber(v)
}

func asNumber(v any) (float64, bool) {
	switch at := v.(type) {
	case int64:
		return float64(at), true
	case float64:
		return at, true
	case string:
		f, err := strconv.ParseFloat(at, 64)
		return f, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
	}
	return 0, false
}

// lastSecond is the largest number that is interpreted as seconds. Larger numbers are milliseconds. It is in the year 5138.
const lastSecond = 1e11

// asTime parses RFC 3339, "2006-01-02 15:04:05", a date, and seconds or milliseconds since 1970.
func asTime(v any) (time.Time, bool) {
	if text, ok := v.(string); ok {
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05", time.DateOnly} {
			if t, err := time.Parse(layout, text); err == nil {
				return t, true
			}
		}
	}
	seconds, ok := asNumber(v)
	if !ok || seconds <= 0 {
		return time.Time{}, false
	}
	if seconds > lastSecond {
		seconds /= 1000
	}
	if seconds > lastSecond {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(seconds * 1000)), true
}
