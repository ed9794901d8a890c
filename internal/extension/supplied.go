package extension

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Schemas that are supplied, and not derived from Go types.

// suppliedName is the name of a model that has a schema of its own: as for custom resources the kind says it, because
// the Go type may be one for many kinds.
func suppliedName(s Resource) string {
	labels := strings.Split(s.gvr.Group, ".")
	slices.Reverse(labels)
	return strings.Join(append(labels, s.gvr.Version, s.kind.Kind), ".")
}

// supplied is the model of a resource's own schema. What every object has is added, as for custom resources.
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

// addCustom adds the models that come with a whole group-version.
func (b *schemas) addCustom(d *CustomDefinition) error {
	for _, name := range slices.Sorted(maps.Keys(d.OpenAPI)) {
		model, err := b.readSchema(d.OpenAPI[name])
		if err != nil {
			return fmt.Errorf("definition %q: %w", name, err)
		}
		b.models[name] = model
	}
	for _, name := range slices.Sorted(maps.Keys(d.OpenAPI)) {
		// A front door merges documents: one that points into the void would break the merged one (kubernetes-sigs/
		// metrics-server#1868).
		if missing := b.dangling(b.models[name]); missing != "" {
			return fmt.Errorf("definition %q refers to %q, which is not supplied", name, missing)
		}
	}
	return nil
}

// readSchema reads a JSON schema, with its references in the spelling of this document.
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

// referred is the name that a reference is to, in whichever version it was written.
func referred(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

// dangling is a name that v refers to and that has no model, empty when there is none.
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
