package extension

import (
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/respond"
)

// marshaler is the generated protobuf code of a Kubernetes type.
type marshaler interface{ Marshal() ([]byte, error) }

// protobufMagic begins every protobuf document of the API, before a runtime.Unknown that names its kind.
var protobufMagic = []byte{'k', '8', 's', 0}

func speaksProtobuf(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[marshaler]())
}

// document is an answer before it has an encoding: JSON and YAML marshal value, protobuf takes the message.
type document struct {
	kind    schema.GroupVersionKind
	value   any
	message func() ([]byte, error)
}

func (d document) encode(media string) ([]byte, error) {
	if media == respond.MediaProtobuf {
		return d.envelope()
	}
	body, err := json.Marshal(d.value)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", d.kind.Kind, err)
	}
	if media == respond.MediaYAML {
		if body, err = yaml.JSONToYAML(body); err != nil {
			return nil, fmt.Errorf("encode %s: %w", d.kind.Kind, err)
		}
		return body, nil
	}
	return append(body, '\n'), nil
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

// objectDocument is one object as it is.
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

// list is the JSON form of every list kind.
type list struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ListMeta `json:"metadata"`
	Items           any             `json:"items"`
}

// listDocument is a list kind made of its item kind.
func listDocument[O any](kind schema.GroupVersionKind, meta metav1.ListMeta, items []O) document {
	kind.Kind += "List"
	apiVersion, name := kind.ToAPIVersionAndKind()
	return document{
		kind:    kind,
		value:   list{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: name}, Metadata: meta, Items: items},
		message: func() ([]byte, error) { return marshalList(meta, items) },
	}
}

// marshalList writes the message that every generated list type has: metadata in field 1, the items in field 2. The
// host can therefore write the list of any item type without knowing its list type.
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
