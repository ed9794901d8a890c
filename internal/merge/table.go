package merge

import (
	"bytes"
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"portico.dev/internal/respond"
)

// form is how a client takes the response: objects, or rows of a Table.
type form struct {
	// accept is what the sources are asked for. All of it is JSON.
	accept []string
	// table is set if the first choice is a Table, and plain if objects are taken.
	table, plain bool
}

// formOf returns the JSON that a client takes. False: it takes none.
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

// objects is the same without Tables.
func (f form) objects() form {
	return form{accept: []string{respond.MediaJSON}, plain: true}
}

// document is a list, a Table, or an object of an event, as far as it is looked at.
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

// metadataOf is that of an object, or of the one that a row is about.
func metadataOf(object []byte) (metadata, error) {
	var o struct {
		Metadata metadata `json:"metadata"`
	}
	err := kjson.UnmarshalCaseSensitivePreserveInts(object, &o)
	return o.Metadata, err
}

// columns are those of a Table that is made of several. The first one that comes has the say, and rows of the others are brought into its order.
type columns struct {
	definitions []json.RawMessage
	names       []string
	sent        bool
}

// adopt takes the columns of a Table over if there are none yet, and returns where each column is in its rows; -1 if it has none. Nil: they
// are the same.
func (c *columns) adopt(definitions []json.RawMessage) []int {
	names := make([]string, len(definitions))
	for i, definition := range definitions {
		var d struct {
			Name string `json:"name"`
		}
		_ = json.Unmarshal(definition, &d) // a column without a name is like no other
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

// encode is json.Marshal without changing the strings that are passed on.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}
