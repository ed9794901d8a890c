package declared

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Object is one object of any declared resource: a header that every Kubernetes object has, and whatever content the
// mapping has made. Content is shared between answers and never changed.
type Object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Content is everything beside the header, by field.
	Content map[string]any `json:"-"`
}

// headerFields are not content.
var headerFields = []string{"apiVersion", "kind", "metadata"}

// header is an Object's JSON without its content.
type header struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
}

// MarshalJSON writes the header and the content side by side.
func (o Object) MarshalJSON() ([]byte, error) {
	head, err := json.Marshal(header{o.TypeMeta, o.ObjectMeta})
	if err != nil || len(o.Content) == 0 {
		return head, err
	}
	content, err := json.Marshal(o.Content)
	if err != nil {
		return nil, fmt.Errorf("content of %q: %w", o.Name, err)
	}
	// Both are objects with at least one field: metadata is always there.
	out := make([]byte, 0, len(head)+len(content))
	out = append(append(out, head[:len(head)-1]...), ',')
	return append(out, content[1:]...), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
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

// at is the value at a path of the object, its header included.
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
