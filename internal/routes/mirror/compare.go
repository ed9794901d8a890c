package mirror

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Rules defines the differences that are allowed between two equal responses.
type Rules struct {
	// Group is the API group of the request.
	Group string
	// Ignore contains dot-separated paths of object fields, in addition to the fields that every server sets. Paths do not
	// contain list indexes.
	Ignore []string
}

// ofEveryServer contains metadata fields that every server sets independently.
var ofEveryServer = []string{
	"metadata.resourceVersion", "metadata.uid", "metadata.creationTimestamp", "metadata.generation", "metadata.managedFields", "metadata.selfLink",
}

// ofSamples contains fields that two servers measure at different times. The values of resource metrics always differ. Values
// of custom and external metrics are compared.
var ofSamples = map[string][]string{
	"metrics.k8s.io":          {"timestamp", "window", "usage", "containers.usage"},
	"custom.metrics.k8s.io":   {"timestamp", "windowSeconds"},
	"external.metrics.k8s.io": {"timestamp", "windowSeconds"},
}

// compare returns the path of the first difference between the bodies, or "" if they are equal. The path contains no values.
func (s *Rules) compare(a, b *Response) (path string, err error) {
	first, err := a.plain()
	if err != nil {
		return "", err
	}
	second, err := b.plain()
	if err != nil {
		return "", err
	}
	if bytes.Equal(first, second) {
		return "", nil
	}
	if !a.isJSON() || !b.isJSON() {
		return "the bytes of the body", nil
	}
	one, errOne := decode(first)
	other, errOther := decode(second)
	if errOne != nil || errOther != nil {
		return "the bytes of the body", nil
	}
	return bounded(differ(s.normalize(one), s.normalize(other), "")), nil
}

func decode(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("more than one value")
	}
	return value, nil
}

// normalize removes ignored fields from an object, or from the items of a list and the objects in the rows of a Table. It sorts
// lists.
func (s *Rules) normalize(value any) any {
	root, ok := value.(map[string]any)
	if !ok {
		return value
	}
	s.strip(root)
	if items, ok := root["items"].([]any); ok {
		s.normalizeList(root)
		for _, item := range items {
			s.strip(item)
		}
		root["items"] = keyed(items, keyOfItem)
	}
	if rows, ok := root["rows"].([]any); ok && root["kind"] == "Table" {
		s.normalizeList(root)
		s.normalizeRows(root, rows)
	}
	return root
}

// normalizeList clears the continue token, which each server encodes differently.
func (s *Rules) normalizeList(root map[string]any) {
	if metadata, ok := root["metadata"].(map[string]any); ok {
		if _, more := metadata["continue"]; more {
			metadata["continue"] = ""
		}
	}
}

// normalizeRows removes cells that depend on ignored fields.
func (s *Rules) normalizeRows(root map[string]any, rows []any) {
	columns, _ := root["columnDefinitions"].([]any)
	for _, row := range rows {
		r, ok := row.(map[string]any)
		if !ok {
			continue
		}
		s.strip(r["object"])
		cells, _ := r["cells"].([]any)
		for i := range cells {
			if s.Group == "metrics.k8s.io" || i < len(columns) && isTime(columns[i]) {
				cells[i] = nil
			}
		}
	}
	root["rows"] = keyed(rows, func(row any) string {
		r, _ := row.(map[string]any)
		return keyOfItem(r["object"])
	})
}

func isTime(column any) bool {
	c, _ := column.(map[string]any)
	return c["type"] == "date" || c["format"] == "date-time" || c["name"] == "Age"
}

func (s *Rules) strip(object any) {
	for _, list := range [][]string{ofEveryServer, ofSamples[s.Group], s.Ignore} {
		for _, path := range list {
			remove(object, path)
		}
	}
}

func remove(value any, path string) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			remove(element, path)
		}
	case map[string]any:
		name, rest, deeper := strings.Cut(path, ".")
		if deeper {
			remove(value[name], rest)
		} else {
			delete(value, name)
		}
	}
}

// keyed converts a list of objects to a map by identity, so that their order does not matter. Objects with the same key are
// numbered.
func keyed(list []any, key func(any) string) any {
	type entry struct {
		key, text string
		value     any
	}
	entries := make([]entry, 0, len(list))
	for _, value := range list {
		text, err := json.Marshal(value) // sorted by field
		if err != nil {
			return list
		}
		entries = append(entries, entry{key(value), string(text), value})
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.text, b.text)) })
	out, last, n := make(map[string]any, len(entries)), "", 0
	for i, e := range entries {
		if n++; i == 0 || e.key != last {
			last, n = e.key, 0
		}
		name := e.key
		if n > 0 {
			name += "#" + strconv.Itoa(n)
		}
		out[name] = e.value
	}
	return objects(out)
}

// objects contains the objects of a list by key.
type objects map[string]any

// keyOfItem returns the identity of a list item: its namespace and name, or the object and the name of a metric.
func keyOfItem(item any) string {
	o, _ := item.(map[string]any)
	of, _ := o["metadata"].(map[string]any)
	if described, ok := o["describedObject"].(map[string]any); ok {
		of = described
	}
	key := textOf(of["name"])
	if namespace := textOf(of["namespace"]); namespace != "" {
		key = namespace + "/" + key
	}
	if metric := textOf(o["metricName"]); metric != "" {
		key = strings.TrimPrefix(key+" "+metric, " ")
	}
	return key
}

func textOf(value any) string {
	text, _ := value.(string)
	return text
}

// differ returns the path of the first difference in the order of names, or "".
func differ(a, b any, at string) string {
	switch a := a.(type) {
	case map[string]any:
		if b, ok := b.(map[string]any); ok {
			return differFields(a, b, func(name string) string { return at + "." + printable(name) })
		}
	case objects:
		if b, ok := b.(objects); ok {
			return differFields(a, b, func(name string) string { return at + "[" + printable(name) + "]" })
		}
	case []any:
		b, ok := b.([]any)
		if !ok {
			break
		}
		for i := range min(len(a), len(b)) {
			if path := differ(a[i], b[i], at+"["+strconv.Itoa(i)+"]"); path != "" {
				return path
			}
		}
		if len(a) == len(b) {
			return ""
		}
		return at + "[" + strconv.Itoa(min(len(a), len(b))) + "]"
	case json.Number:
		if b, ok := b.(json.Number); ok && sameNumber(a, b) {
			return ""
		}
	default:
		if sameScalar(a, b) {
			return ""
		}
	}
	return cmp.Or(at, ".")
}

func differFields(a, b map[string]any, path func(name string) string) string {
	names := slices.Collect(maps.Keys(a))
	for name := range b {
		if _, both := a[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		one, inA := a[name]
		other, inB := b[name]
		if inA != inB {
			return path(name)
		}
		if found := differ(one, other, path(name)); found != "" {
			return found
		}
	}
	return ""
}

func sameScalar(a, b any) bool {
	switch b.(type) {
	case map[string]any, objects, []any:
		return false
	}
	return a == b
}

// sameNumber reports whether two numbers are equal, such as 1 and 1.0. Integers are compared as text, because a float would
// lose digits.
func sameNumber(a, b json.Number) bool {
	if a == b {
		return true
	}
	if !strings.ContainsAny(string(a)+string(b), ".eE") {
		return false
	}
	one, errOne := a.Float64()
	other, errOther := b.Float64()
	return errOne == nil && errOther == nil && one == other
}

func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, name)
}
