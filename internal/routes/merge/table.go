package merge

import (
	"bytes"
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"portico.dev/internal/respond"
)

// form is the response format that a client accepts: objects, or rows of a Table.
type form struct {
	// accept contains the media types to request from the sources. All of them are JSON.
	accept []string
	// table is set if a Table is the first choice, and plain if the client accepts objects.
	table, plain bool
}

// formOf returns the JSON formats that a client accepts. It returns false if the client accepts none.
func formOf(accept []string) (f form, ok bool) {
	if len(accept) == 0 {
		return form{accept: []string{respond.MediaJSON}, plain: true}, true
	}
	for _, c := range respond.ParseAccept(accept...) {
		switch c.MediaType {
		case respond.MediaJSON, "application/*", "*/*":
		default:
			continue
		}
		text := respond.MediaJSON
		for _, name := range []string{"as", "v", "g"} {
			if v := c.Params[name]; v != "" {
				text += ";" + name + "=" + v
			}
		}
		if len(f.accept) == 0 {
			f.table = c.Params["as"] == "Table"
		}
		f.plain = f.plain || c.Params["as"] == ""
		if !slices.Contains(f.accept, text) {
			f.accept = append(f.accept, text)
		}
	}
	return f, len(f.accept) > 0
}

// objects returns the form without Tables.
func (f form) objects() form {
	return form{accept: []string{respond.MediaJSON}, plain: true}
}

// document contains the relevant fields of a list, a Table, or an object of an event.
type document struct {
	Kind       string            `json:"kind"`
	APIVersion string            `json:"apiVersion"`
	Metadata   metadata          `json:"metadata"`
	Columns    []json.RawMessage `json:"columnDefinitions"`
	Rows       []row             `json:"rows"`
	Items      []json.RawMessage `json:"items"`
}

type metadata struct {
	Namespace       string            `json:"namespace"`
	ResourceVersion string            `json:"resourceVersion"`
	Continue        string            `json:"continue"`
	Annotations     map[string]string `json:"annotations"`
}

type row struct {
	Cells      []json.RawMessage `json:"cells"`
	Conditions json.RawMessage   `json:"conditions,omitempty"`
	Object     json.RawMessage   `json:"object,omitempty"`
}

func parse(data []byte) (*document, error) {
	d := &document{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, d); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *document) isTable() bool {
	return d.Kind == "Table" && d.APIVersion == metav1.SchemeGroupVersion.String()
}

// metadataOf returns the metadata of an object.
func metadataOf(object []byte) (metadata, error) {
	var o struct {
		Metadata metadata `json:"metadata"`
	}
	err := kjson.UnmarshalCaseSensitivePreserveInts(object, &o)
	return o.Metadata, err
}

// columns are the columns of a Table merged from several ones. The first Table determines them, and the cells of the others are
// reordered.
type columns struct {
	definitions []json.RawMessage
	names       []string
	sent        bool
}

// adopt sets the columns from the first Table. It returns the index of each column in the Table's rows, with -1 for missing
// columns, or nil if the columns are the same.
func (c *columns) adopt(definitions []json.RawMessage) []int {
	names := make([]string, len(definitions))
	for i, definition := range definitions {
		var d struct {
			Name string `json:"name"`
		}
		_ = json.Unmarshal(definition, &d) // a column without a name differs from all others
		names[i] = d.Name
	}
	if c.definitions == nil {
		c.definitions, c.names = definitions, names
	}
	if slices.Equal(names, c.names) {
		return nil
	}
	order := make([]int, len(c.names))
	for i, name := range c.names {
		order[i] = slices.Index(names, name)
	}
	return order
}

var null = json.RawMessage("null")

func reorder(cells []json.RawMessage, order []int) []json.RawMessage {
	if order == nil {
		return cells
	}
	out := make([]json.RawMessage, len(order))
	for i, at := range order {
		out[i] = null
		if at >= 0 && at < len(cells) {
			out[i] = cells[at]
		}
	}
	return out
}

// encode is json.Marshal without HTML escaping, so that strings remain unchanged.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}
