package extension

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/respond"
)

// marshaler is the generated protobuf encoder of a Kubernetes type.
type marshaler interface{ Marshal() ([]byte, error) }

// protobufMagic begins every protobuf document of the API. A runtime.Unknown with the kind follows.
var protobufMagic = []byte{'k', '8', 's', 0}

func speaksProtobuf(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[marshaler]())
}

// document is a response before encoding. JSON and YAML marshal value, protobuf uses message.
type document struct {
	kind    schema.GroupVersionKind
	value   any
	message func() ([]byte, error)
}

// streamer is a value that writes its JSON in pieces.
type streamer interface {
	writeJSON(into *bytes.Buffer) error
}

// encode appends the document to into.
func (d document) encode(into *bytes.Buffer, media string) error {
	if media == respond.MediaProtobuf {
		body, err := d.envelope()
		into.Write(body)
		return err
	}
	if err := d.writeJSON(into); err != nil {
		return fmt.Errorf("encode %s: %w", d.kind.Kind, err)
	}
	if media == respond.MediaYAML {
		body, err := yaml.JSONToYAML(into.Bytes())
		if err != nil {
			return fmt.Errorf("encode %s: %w", d.kind.Kind, err)
		}
		into.Reset()
		into.Write(body)
	}
	return nil
}

func (d document) writeJSON(into *bytes.Buffer) error {
	if s, ok := d.value.(streamer); ok {
		return s.writeJSON(into)
	}
	return json.NewEncoder(into).Encode(d.value)
}

func (d document) envelope() ([]byte, error) {
	raw, err := d.message()
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", d.kind.Kind, err)
	}
	apiVersion, kind := d.kind.ToAPIVersionAndKind()
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}
	body, err := unknown.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", d.kind.Kind, err)
	}
	return append(append(make([]byte, 0, len(protobufMagic)+len(body)), protobufMagic...), body...), nil
}

// openEnvelope is the reverse of envelope.
func openEnvelope(data []byte) (schema.GroupVersionKind, []byte, error) {
	data, ok := bytes.CutPrefix(data, protobufMagic)
	if !ok {
		return schema.GroupVersionKind{}, nil, errors.New("does not begin as a protobuf document of the API does")
	}
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(data); err != nil {
		return schema.GroupVersionKind{}, nil, err
	}
	return unknown.GroupVersionKind(), unknown.Raw, nil
}

// objectDocument returns the document of one object.
func objectDocument(o object) document {
	return document{kind: o.GetObjectKind().GroupVersionKind(), value: o, message: func() ([]byte, error) { return marshal(o) }}
}

func marshal(v any) ([]byte, error) {
	m, ok := v.(marshaler)
	if !ok {
		return nil, fmt.Errorf("%T has no protobuf form", v)
	}
	return m.Marshal()
}

// list is the JSON form of a list kind.
type list[O any] struct {
	apiVersion, kind string
	meta             metav1.ListMeta
	items            []O
}

// writeJSON encodes item by item. Encoding the list as one value would hold it in memory twice.
func (l list[O]) writeJSON(into *bytes.Buffer) error {
	head, err := json.Marshal(struct {
		Kind       string          `json:"kind"`
		APIVersion string          `json:"apiVersion"`
		Metadata   metav1.ListMeta `json:"metadata"`
	}{l.kind, l.apiVersion, l.meta})
	if err != nil {
		return err
	}
	into.Write(head[:len(head)-1])
	into.WriteString(`,"items":[`)
	encoder := json.NewEncoder(into)
	for i := range l.items {
		if i > 0 {
			into.WriteByte(',')
		}
		if err := encoder.Encode(l.items[i]); err != nil {
			return err
		}
		into.Truncate(into.Len() - 1) // the newline that Encode appends
	}
	into.WriteString("]}\n")
	return nil
}

// listDocument returns the document of a list. Its kind is the kind of the items with the suffix List.
func listDocument[O any](kind schema.GroupVersionKind, meta metav1.ListMeta, items []O) document {
	kind.Kind += "List"
	apiVersion, name := kind.ToAPIVersionAndKind()
	return document{
		kind:    kind,
		value:   list[O]{apiVersion: apiVersion, kind: name, meta: meta, items: items},
		message: func() ([]byte, error) { return marshalList(meta, items) },
	}
}

// marshalList encodes the protobuf message that all generated list types share: metadata in field 1, items in field 2. The
// host can therefore encode a list of any item type without its list type.
func marshalList[O any](meta metav1.ListMeta, items []O) ([]byte, error) {
	header, err := meta.Marshal()
	if err != nil {
		return nil, err
	}
	out := appendField(nil, 1, header)
	for _, item := range items {
		raw, err := marshal(item)
		if err != nil {
			return nil, err
		}
		out = appendField(out, 2, raw)
	}
	return out, nil
}

// appendField appends a length-delimited protobuf field.
func appendField(out []byte, number byte, raw []byte) []byte {
	const lengthDelimited = 2
	out = append(out, number<<3|lengthDelimited)
	n := uint64(len(raw))
	for n >= 0x80 {
		out = append(out, byte(n)|0x80)
		n >>= 7
	}
	return append(append(out, byte(n)), raw...)
}

// includePolicy reads the query parameter includeObject, which selects the part of each object that a Table row contains.
func includePolicy(r *http.Request) (metav1.IncludeObjectPolicy, error) {
	switch policy := metav1.IncludeObjectPolicy(r.URL.Query().Get("includeObject")); policy {
	case "":
		return metav1.IncludeMetadata, nil
	case metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject:
		return policy, nil
	default:
		return "", apierrors.NewBadRequest(fmt.Sprintf("includeObject %q: must be None, Metadata or Object", policy))
	}
}

func metaKind(kind, version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "meta.k8s.io", Version: version, Kind: kind}
}

// tableDocument returns the Table of items.
func tableDocument(s Resource, version string, meta metav1.ListMeta, items []object, include metav1.IncludeObjectPolicy) (document, error) {
	table, err := newTable(s, version, meta, items, include)
	if err != nil {
		return document{}, err
	}
	return document{kind: metaKind("Table", version), value: table}, nil
}

func newTable(s Resource, version string, meta metav1.ListMeta, items []object, include metav1.IncludeObjectPolicy) (*metav1.Table, error) {
	table := &metav1.Table{ListMeta: meta, ColumnDefinitions: s.source.columns(items), Rows: make([]metav1.TableRow, len(items))}
	table.SetGroupVersionKind(metaKind("Table", version))
	for i, cells := range s.source.cells(items) {
		described, err := rowObject(items[i], version, include)
		if err != nil {
			return nil, err
		}
		table.Rows[i] = metav1.TableRow{Cells: cells, Object: described}
	}
	return table, nil
}

func rowObject(o object, version string, include metav1.IncludeObjectPolicy) (runtime.RawExtension, error) {
	var v any
	switch include {
	case metav1.IncludeNone:
		return runtime.RawExtension{}, nil
	case metav1.IncludeObject:
		v = o
	default:
		v = partial(o, version)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return runtime.RawExtension{}, fmt.Errorf("encode %s %q: %w", o.GetObjectKind().GroupVersionKind().Kind, o.GetName(), err)
	}
	return runtime.RawExtension{Raw: raw}, nil
}

// partial returns the metadata of o.
func partial(o object, version string) *metav1.PartialObjectMetadata {
	p := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name:                       o.GetName(),
		GenerateName:               o.GetGenerateName(),
		Namespace:                  o.GetNamespace(),
		UID:                        o.GetUID(),
		ResourceVersion:            o.GetResourceVersion(),
		Generation:                 o.GetGeneration(),
		CreationTimestamp:          o.GetCreationTimestamp(),
		DeletionTimestamp:          o.GetDeletionTimestamp(),
		DeletionGracePeriodSeconds: o.GetDeletionGracePeriodSeconds(),
		Labels:                     o.GetLabels(),
		Annotations:                o.GetAnnotations(),
		OwnerReferences:            o.GetOwnerReferences(),
		Finalizers:                 o.GetFinalizers(),
		ManagedFields:              o.GetManagedFields(),
	}}
	p.SetGroupVersionKind(metaKind("PartialObjectMetadata", version))
	return p
}

// metadataDocument returns the metadata of one object.
func metadataDocument(o object, version string) document {
	p := partial(o, version)
	return document{kind: metaKind("PartialObjectMetadata", version), value: p, message: p.Marshal}
}

// metadataListDocument returns the metadata of items.
func metadataListDocument(version string, meta metav1.ListMeta, items []object) document {
	partials := make([]*metav1.PartialObjectMetadata, len(items))
	for i, o := range items {
		partials[i] = partial(o, version)
	}
	return listDocument(metaKind("PartialObjectMetadata", version), meta, partials)
}
