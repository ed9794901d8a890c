package extension

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// schemas derives OpenAPI models from Go types by reflection. Descriptions come from the SwaggerDoc methods of Kubernetes
// types, from `description` tags, and from Definition.Docs.
type schemas struct {
	prefix string // prefix of references
	v3     bool
	models map[string]map[string]any
}

func newSchemas(prefix string, v3 bool) *schemas {
	return &schemas{prefix: prefix, v3: v3, models: map[string]map[string]any{}}
}

// Methods of types that describe themselves, as defined by kube-openapi and by the generated Kubernetes types.
type (
	modelNamer  interface{ OpenAPIModelName() string }
	docCarrier  interface{ SwaggerDoc() map[string]string }
	schemaTyper interface {
		OpenAPISchemaType() []string
		OpenAPISchemaFormat() string
	}
)

// addResource adds the models of the kind and list kind of a resource and returns references to them.
func (b *schemas) addResource(s Resource) (item, list map[string]any, err error) {
	t := s.source.goType()
	name := modelName(t)
	var model map[string]any
	if s.schema == nil {
		model = b.object(t, docs{byPath: s.docs})
	} else {
		name = suppliedName(s)
		if model, err = b.supplied(s); err != nil {
			return nil, nil, err
		}
	}
	b.addKind(name, model, s, s.kind.Kind)
	listName := name + "List"
	b.addType(metav1.ListMeta{})
	b.addKind(listName, map[string]any{
		"type":        "object",
		"description": s.kind.Kind + "List is a list of " + s.kind.Kind + ".",
		"required":    []string{"items"},
		"properties": map[string]any{
			"apiVersion": described(map[string]any{"type": "string"}, metav1.TypeMeta{}.SwaggerDoc()["apiVersion"]),
			"kind":       described(map[string]any{"type": "string"}, metav1.TypeMeta{}.SwaggerDoc()["kind"]),
			"metadata":   b.described(b.refTo(metav1.ListMeta{}), "Standard list metadata."),
			"items": map[string]any{"type": "array", "description": "Items are the objects of the list.",
				"items": b.reference(name)},
		},
	}, s, s.kind.Kind+"List")
	return b.ref(name), b.ref(listName), nil
}

// addKind adds the model of a kind. A Go type that is served in two versions has one model with two kinds.
func (b *schemas) addKind(name string, model map[string]any, s Resource, kind string) {
	gvk := s.kind
	gvk.Kind = kind
	kinds := []any{kindExtension(gvk)}
	if have, ok := b.models[name]["x-kubernetes-group-version-kind"].([]any); ok {
		kinds = append(slices.Clone(have), kinds...)
	}
	model["x-kubernetes-group-version-kind"] = kinds
	b.models[name] = model
}

// addType adds the model of a Go type that is not a hosted kind.
func (b *schemas) addType(v any) { b.schemaOf(reflect.TypeOf(v), docs{}) }

func (b *schemas) refTo(v any) map[string]any { return b.ref(modelName(reflect.TypeOf(v))) }

func (b *schemas) ref(name string) map[string]any { return map[string]any{"$ref": b.prefix + name} }

// reference returns a reference for use within a model. In v3 it is wrapped in allOf, because JSON schema ignores the
// siblings of a $ref.
func (b *schemas) reference(name string) map[string]any {
	if !b.v3 {
		return b.ref(name)
	}
	return map[string]any{"allOf": []any{b.ref(name)}, "default": map[string]any{}}
}

func (b *schemas) described(schema map[string]any, text string) map[string]any {
	if ref, ok := schema["$ref"]; ok && b.v3 {
		schema = map[string]any{"allOf": []any{map[string]any{"$ref": ref}}, "default": map[string]any{}}
	}
	return described(schema, text)
}

func described(schema map[string]any, text string) map[string]any {
	if text != "" {
		schema["description"] = text
	}
	return schema
}

// docs are the descriptions of a resource, relative to a path within its type.
type docs struct {
	byPath map[string]string
	path   string
}

func (d docs) description() string { return d.byPath[d.path] }

func (d docs) field(name string) docs {
	if d.path != "" {
		name = d.path + "." + name
	}
	return docs{byPath: d.byPath, path: name}
}

// schemaOf returns the schema for a use of a type: inline for plain types, a reference for named structs.
func (b *schemas) schemaOf(t reflect.Type, d docs) map[string]any {
	if plain, ok := selfDescribed(t); ok {
		return plain
	}
	switch t.Kind() {
	case reflect.Pointer:
		return b.schemaOf(t.Elem(), d)
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int64, reflect.Uint, reflect.Uint64, reflect.Uint32:
		return map[string]any{"type": "integer", "format": "int64"}
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Uint8, reflect.Uint16:
		return map[string]any{"type": "integer", "format": "int32"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number", "format": "double"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return map[string]any{"type": "string", "format": "byte"}
		}
		return map[string]any{"type": "array", "items": b.schemaOf(t.Elem(), d)}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": b.schemaOf(t.Elem(), d)}
	case reflect.Struct:
		return b.structure(t, d)
	}
	return map[string]any{} // an interface accepts any value
}

// selfDescribed returns the schema of a type that does not encode as its fields.
func selfDescribed(t reflect.Type) (map[string]any, bool) {
	if t == reflect.TypeFor[json.RawMessage]() {
		return map[string]any{}, true
	}
	if t.Kind() == reflect.Pointer {
		return nil, false
	}
	if v, ok := reflect.New(t).Interface().(schemaTyper); ok && len(v.OpenAPISchemaType()) > 0 {
		schema := map[string]any{"type": v.OpenAPISchemaType()[0]}
		if format := v.OpenAPISchemaFormat(); format != "" {
			schema["format"] = format
		}
		return schema, true
	}
	if t.Kind() == reflect.Struct && reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) {
		return map[string]any{"type": "object"}, true // a custom encoding, e.g. FieldsV1
	}
	return nil, false
}

func (b *schemas) structure(t reflect.Type, d docs) map[string]any {
	if t.Name() == "" {
		return b.object(t, d)
	}
	name := modelName(t)
	if _, known := b.models[name]; !known {
		b.models[name] = map[string]any{} // terminates the recursion for types that contain themselves
		maps.Copy(b.models[name], b.object(t, d))
	}
	return b.reference(name)
}

// object returns the model of a struct.
func (b *schemas) object(t reflect.Type, d docs) map[string]any {
	properties := map[string]any{}
	required := b.fields(t, d, properties)
	model := map[string]any{"type": "object"}
	if len(properties) > 0 {
		model["properties"] = properties
	}
	if len(required) > 0 {
		slices.Sort(required)
		model["required"] = required
	}
	text := d.description()
	if text == "" {
		text = swaggerDoc(t)[""]
	}
	return described(model, text)
}

// fields adds the properties of a struct under their JSON names and returns the ones that are always present.
func (b *schemas) fields(t reflect.Type, d docs, properties map[string]any) (required []string) {
	own := swaggerDoc(t)
	for i := range t.NumField() {
		f := t.Field(i)
		name, flags, _ := strings.Cut(f.Tag.Get("json"), ",")
		embedded := f.Anonymous && name == ""
		if name == "-" || (!f.IsExported() && !embedded) {
			continue
		}
		if embedded {
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if inner.Kind() == reflect.Struct {
				required = append(required, b.fields(inner, d, properties)...)
				continue
			}
		}
		name = cmp.Or(name, f.Name)
		at := d.field(name)
		properties[name] = b.described(b.schemaOf(f.Type, at), firstOf(at.description(), f.Tag.Get("description"), own[name], typeDoc(f.Type)))
		if !strings.Contains(flags, "omitempty") && !strings.Contains(flags, "omitzero") {
			required = append(required, name)
		}
	}
	return required
}

func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

// typeDoc returns the description of a field's type, for fields without a description.
func typeDoc(t reflect.Type) string {
	if t.Kind() != reflect.Struct {
		return ""
	}
	return swaggerDoc(t)[""]
}

func swaggerDoc(t reflect.Type) map[string]string {
	if v, ok := reflect.New(t).Interface().(docCarrier); ok {
		return v.SwaggerDoc()
	}
	return nil
}

// modelName returns the name of a type's model: the name that the type defines, or its import path with a reversed host, as
// in Kubernetes.
func modelName(t reflect.Type) string {
	if v, ok := reflect.New(t).Interface().(modelNamer); ok {
		return v.OpenAPIModelName()
	}
	host, rest, _ := strings.Cut(t.PkgPath(), "/")
	labels := strings.Split(host, ".")
	slices.Reverse(labels)
	path := strings.Join(labels, ".")
	if rest != "" {
		path += "." + strings.ReplaceAll(rest, "/", ".")
	}
	// Replace characters that references must not contain, such as the brackets of a generic type.
	return strings.Map(func(c rune) rune {
		if strings.ContainsRune("[],/*", c) {
			return '_'
		}
		return c
	}, fmt.Sprintf("%s.%s", path, t.Name()))
}

// Supplied schemas, which are not derived from Go types.

// suppliedName returns the name of the model of a supplied schema. As for custom resources it derives from the kind, because
// several kinds may share a Go type.
func suppliedName(s Resource) string {
	labels := strings.Split(s.gvr.Group, ".")
	slices.Reverse(labels)
	return strings.Join(append(labels, s.gvr.Version, s.kind.Kind), ".")
}

// supplied returns the model of a supplied schema. As for custom resources, it adds apiVersion, kind and metadata.
func (b *schemas) supplied(s Resource) (map[string]any, error) {
	model, err := b.readSchema(s.schema)
	if err != nil {
		return nil, fmt.Errorf("supplied schema: %w", err)
	}
	properties, _ := model["properties"].(map[string]any)
	properties = maps.Clone(properties)
	if properties == nil {
		properties = map[string]any{}
	}
	b.addType(metav1.ObjectMeta{})
	for name, schema := range map[string]map[string]any{
		"apiVersion": described(map[string]any{"type": "string"}, metav1.TypeMeta{}.SwaggerDoc()["apiVersion"]),
		"kind":       described(map[string]any{"type": "string"}, metav1.TypeMeta{}.SwaggerDoc()["kind"]),
		"metadata":   b.described(b.refTo(metav1.ObjectMeta{}), "Standard object metadata."),
	} {
		if _, own := properties[name]; !own || name == "metadata" {
			properties[name] = schema
		}
	}
	model["properties"] = properties
	if _, own := model["type"]; !own {
		model["type"] = "object"
	}
	if missing := b.dangling(model); missing != "" {
		return nil, fmt.Errorf("supplied schema refers to %q, which is not there", missing)
	}
	return model, nil
}

// addCustom adds the models of a custom group-version.
func (b *schemas) addCustom(d *CustomDefinition) error {
	for _, name := range slices.Sorted(maps.Keys(d.OpenAPI)) {
		model, err := b.readSchema(d.OpenAPI[name])
		if err != nil {
			return fmt.Errorf("definition %q: %w", name, err)
		}
		b.models[name] = model
	}
	for _, name := range slices.Sorted(maps.Keys(d.OpenAPI)) {
		// A front door merges documents, and a dangling reference would break the merged document
		// (kubernetes-sigs/metrics-server#1868).
		if missing := b.dangling(b.models[name]); missing != "" {
			return fmt.Errorf("definition %q refers to %q, which is not supplied", name, missing)
		}
	}
	return nil
}

// readSchema parses a JSON schema and rewrites its references to the syntax of this document.
func (b *schemas) readSchema(raw json.RawMessage) (map[string]any, error) {
	var model map[string]any
	if err := json.Unmarshal(raw, &model); err != nil {
		return nil, err
	}
	if model == nil {
		return nil, fmt.Errorf("is null, must be an object")
	}
	b.rewrite(model)
	return model, nil
}

func (b *schemas) rewrite(v any) {
	switch v := v.(type) {
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok {
			v["$ref"] = b.prefix + referred(ref)
		}
		for _, inner := range v {
			b.rewrite(inner)
		}
	case []any:
		for _, inner := range v {
			b.rewrite(inner)
		}
	}
}

// referred returns the model name in a reference of either OpenAPI version.
func referred(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

// dangling returns a name that v refers to and that has no model, or an empty string.
func (b *schemas) dangling(v any) string {
	switch v := v.(type) {
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok && b.models[referred(ref)] == nil {
			return referred(ref)
		}
		for _, inner := range v {
			if missing := b.dangling(inner); missing != "" {
				return missing
			}
		}
	case []any:
		for _, inner := range v {
			if missing := b.dangling(inner); missing != "" {
				return missing
			}
		}
	}
	return ""
}
