package proxy

import (
	"encoding/json"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	kjson "sigs.k8s.io/json"
)

// object contains the common fields of every API object and list. The metadata is kept unparsed, so that fields unknown to
// Portico are preserved.
type object struct {
	Kind       string            `json:"kind"`
	APIVersion string            `json:"apiVersion"`
	Metadata   json.RawMessage   `json:"metadata"`
	Items      []json.RawMessage `json:"items"`
	isList     bool
	whole      json.RawMessage
}

// partial is a PartialObjectMetadata or a list of them.
type partial struct {
	Kind       string          `json:"kind"`
	APIVersion string          `json:"apiVersion"`
	Metadata   json.RawMessage `json:"metadata"`
	Items      *[]partial      `json:"items,omitempty"`
}

type table struct {
	Kind       string                         `json:"kind"`
	APIVersion string                         `json:"apiVersion"`
	Metadata   json.RawMessage                `json:"metadata"`
	Columns    []metav1.TableColumnDefinition `json:"columnDefinitions"`
	Rows       []row                          `json:"rows"`
}

type row struct {
	Cells  []any `json:"cells"`
	Object any   `json:"object,omitempty"`
}

// columns are the columns of custom resources that do not define their own.
var columns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "The name of the object, which is unique within its namespace and resource."},
	{Name: "Age", Type: "date", Description: "How long ago the object was created."},
}

var noMetadata = json.RawMessage("{}")

// parseObject parses an object or a list that has a kind.
func parseObject(text []byte) (*object, error) {
	o, err := parseItem(text)
	if err == nil && o.Kind == "" {
		err = errNotAnObject
	}
	return o, err
}

// parseItem parses a list item, which may omit its kind because the list determines it.
func parseItem(text []byte) (*object, error) {
	o := &object{whole: text}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, o); err != nil {
		return nil, errNotAnObject
	}
	// The items of an empty list may be null or absent.
	o.isList = o.Items != nil || strings.HasSuffix(o.Kind, "List")
	if len(o.Metadata) == 0 || string(o.Metadata) == "null" {
		o.Metadata = noMetadata
	}
	return o, nil
}

// convert converts an object or a list.
func (c *conversion) convert(text []byte) ([]byte, error) {
	o, err := parseObject(text)
	if err != nil {
		return nil, err
	}
	if o.Kind == "Status" || o.Kind == "Table" {
		return text, nil // k8s.io/apiserver leaves these unchanged, too
	}
	if c.table {
		t, err := c.tableOf(o)
		if err != nil {
			return nil, err
		}
		return json.Marshal(t)
	}
	p, err := c.partialOf(o)
	if err != nil {
		return nil, err
	}
	return json.Marshal(p)
}

// event converts the object of a watch event. Only the first Table of a watch has columns, and a bookmark has no rows.
func (c *conversion) event(e event, first bool) (json.RawMessage, error) {
	o, err := parseObject(e.Object)
	switch {
	case err != nil:
		return nil, err
	case e.Type == "ERROR" || o.Kind == "Status":
		return e.Object, nil
	case !c.table:
		p, err := c.partialOf(o)
		if err != nil {
			return nil, err
		}
		return json.Marshal(p)
	}
	t, err := c.tableOf(o)
	if err != nil {
		return nil, err
	}
	if e.Type == "BOOKMARK" {
		t.Rows = []row{}
	}
	if !first {
		t.Columns = nil
	}
	return json.Marshal(t)
}

func (c *conversion) partialOf(o *object) (partial, error) {
	if !o.isList {
		return c.partialOne(o), nil
	}
	items := make([]partial, 0, len(o.Items))
	for _, text := range o.Items {
		item, err := parseItem(text)
		if err != nil {
			return partial{}, err
		}
		items = append(items, c.partialOne(item))
	}
	return partial{Kind: "PartialObjectMetadataList", APIVersion: c.apiVersion(), Metadata: o.Metadata, Items: &items}, nil
}

func (c *conversion) partialOne(o *object) partial {
	return partial{Kind: "PartialObjectMetadata", APIVersion: c.apiVersion(), Metadata: o.Metadata}
}

func (c *conversion) apiVersion() string { return "meta.k8s.io/" + c.version }

func (c *conversion) tableOf(o *object) (*table, error) {
	t := &table{Kind: "Table", APIVersion: c.apiVersion(), Metadata: noMetadata, Columns: columns, Rows: []row{}}
	list := []*object{o}
	var meta struct {
		ResourceVersion    string `json:"resourceVersion,omitempty"`
		Continue           string `json:"continue,omitempty"`
		RemainingItemCount *int64 `json:"remainingItemCount,omitempty"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(o.Metadata, &meta); err != nil {
		return nil, errNotAnObject
	}
	t.Metadata, _ = json.Marshal(meta) // cannot fail: strings and a number
	if o.isList {
		list = list[:0]
		for _, text := range o.Items {
			item, err := parseItem(text)
			if err != nil {
				return nil, err
			}
			list = append(list, item)
		}
	}
	now := time.Now()
	for _, item := range list {
		r, err := c.rowOf(item, now)
		if err != nil {
			return nil, err
		}
		t.Rows = append(t.Rows, r)
	}
	return t, nil
}

func (c *conversion) rowOf(o *object, now time.Time) (row, error) {
	var meta struct {
		Name    string      `json:"name"`
		Created metav1.Time `json:"creationTimestamp"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(o.Metadata, &meta); err != nil {
		return row{}, errNotAnObject
	}
	age := "<unknown>"
	if !meta.Created.IsZero() {
		age = duration.HumanDuration(now.Sub(meta.Created.Time))
	}
	r := row{Cells: []any{meta.Name, age}}
	switch c.include {
	case includeNone:
	case includeObject:
		r.Object = o.whole
	default:
		r.Object = c.partialOne(o)
	}
	return r, nil
}
