package sharedwatch

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// list is a complete collection.
type list struct {
	version          string
	kind, apiVersion string // of the objects
	objects          map[objectKey]json.RawMessage

	skipped  func() // called for each item that is not kept; nil if all are kept
	untyped  []objectKey
	listKind string
	meta     metav1.ListMeta
}

var errNotAList = errors.New("what the extension server answered is not a list with a resource version")

// readList reads a list, one item at a time. An item without kind and apiVersion gets them from the list, because objects
// in events have them. If skipped is not nil, it is called after each item, only the resource version is kept, and the list
// may be incomplete.
func readList(from io.Reader, skipped func()) (*list, error) {
	l := &list{skipped: skipped, objects: map[objectKey]json.RawMessage{}}
	if err := l.decode(json.NewDecoder(from)); err != nil {
		var syntax *json.SyntaxError
		var mismatch *json.UnmarshalTypeError
		if errors.As(err, &syntax) || errors.As(err, &mismatch) {
			return nil, errNotAList
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	kind, isList := strings.CutSuffix(l.listKind, "List")
	l.kind, l.version = kind, l.meta.ResourceVersion
	if !isList || kind == "" || l.apiVersion == "" || l.version == "" || l.version == "0" || skipped == nil && l.meta.Continue != "" {
		return nil, errNotAList
	}
	typed := fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,`, l.kind, l.apiVersion)
	for _, key := range l.untyped {
		l.objects[key] = slices.Concat(typed, bytes.TrimLeft(l.objects[key], " \t\r\n{"))
	}
	return l, nil
}

func (l *list) decode(d *json.Decoder) error {
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return cmp.Or(err, errNotAList)
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		switch name {
		case "kind":
			err = d.Decode(&l.listKind)
		case "apiVersion":
			err = d.Decode(&l.apiVersion)
		case "metadata":
			err = d.Decode(&l.meta)
		case "items":
			if l.skipped != nil && l.listKind != "" && l.apiVersion != "" && l.meta.ResourceVersion != "" {
				return nil // the rest may be a whole collection, if the server ignores the limit
			}
			err = l.decodeItems(d)
		default:
			var skipped json.RawMessage
			err = d.Decode(&skipped)
		}
		if err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil { // the end of the object
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return cmp.Or(err, errNotAList)
	}
	return nil
}

func (l *list) decodeItems(d *json.Decoder) error {
	begin, err := d.Token()
	if err != nil || begin == nil { // null
		return err
	}
	if begin != json.Delim('[') {
		return errNotAList
	}
	var skipped json.RawMessage
	for d.More() {
		if l.skipped != nil {
			if err := d.Decode(&skipped); err != nil {
				return err
			}
			l.skipped()
			continue
		}
		var item json.RawMessage
		if err := d.Decode(&item); err != nil {
			return err
		}
		if err := l.add(item); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

func (l *list) add(item json.RawMessage) error {
	var o struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct{ Namespace, Name string }
	}
	if json.Unmarshal(item, &o) != nil || o.Metadata.Name == "" {
		return errNotAList
	}
	key := objectKey{o.Metadata.Namespace, o.Metadata.Name}
	l.objects[key] = item
	if o.Kind == "" && o.APIVersion == "" {
		l.untyped = append(l.untyped, key)
	}
	return nil
}
