package declared

import (
	"encoding/json"
	"slices"

	"go.yaml.in/yaml/v3"
)

// schemaTypes are the types of a structural schema.
var schemaTypes = []string{"object", "array", "string", "integer", "number", "boolean"}

// readSchema is the schema that a resource gives for its content, nil when there is none.
func readSchema(f *form) json.RawMessage {
	n := f.ask("schema")
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

// checkSchema notes what clients of OpenAPI would stumble over. Words that it does not know are let through: there are
// more of them than anybody lists.
func checkSchema(notes *notes, n *yaml.Node, field string) {
	f := newForm(notes, n, field)
	kind := ""
	if f.ask("type") != nil {
		kind = f.text("type")
		if kind != "" && !slices.Contains(schemaTypes, kind) {
			f.wrong("type", "%q: must be %s", kind, sentence(schemaTypes))
		}
	}
	if f.ask("$ref") != nil {
		f.wrong("$ref", "references are not supported: write the schema out")
	}
	properties := f.form("properties")
	for _, key := range properties.keys {
		if v := properties.ask(key.Value); v != nil {
			checkSchema(notes, v, properties.field(key.Value))
		}
	}
	if items := f.ask("items"); items != nil {
		checkSchema(notes, items, f.field("items"))
	} else if kind == "array" {
		f.wrong("items", "required, since type is array")
	}
	if more := f.ask("additionalProperties"); more != nil && more.Kind == yaml.MappingNode {
		checkSchema(notes, more, f.field("additionalProperties"))
	}
}
