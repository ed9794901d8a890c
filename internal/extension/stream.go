package extension

import (
	"bytes"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"portico.dev/internal/respond"
)

// stream writes watch events in one representation.
type stream struct {
	sink
	resource Resource
	rep      representation
	include  metav1.IncludeObjectPolicy
	headed   bool // the Table columns have been told; they are told once
}

// event writes one change of an object.
func (s *stream) event(kind watch.EventType, o object) error {
	doc, err := s.document(o)
	if err != nil {
		return err
	}
	return s.write(kind, doc)
}

// bookmark writes an object without content that carries a version. The last of the initial events is marked, which
// is what a client waits for that asked for them.
func (s *stream) bookmark(version uint64, initialEventsEnd bool) error {
	if s.rep.form == tableForm {
		// A table without rows: columns of an object without content could not be computed.
		table := &metav1.Table{ListMeta: metav1.ListMeta{ResourceVersion: formatVersion(version)}, Rows: []metav1.TableRow{}}
		table.SetGroupVersionKind(metaKind("Table", s.rep.version))
		return s.write(watch.Bookmark, document{kind: table.GroupVersionKind(), value: table})
	}
	o := s.resource.source.blank()
	o.SetResourceVersion(formatVersion(version))
	if initialEventsEnd {
		o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return s.event(watch.Bookmark, o)
}

// failure writes the error that ends the stream.
func (s *stream) failure(err error) error {
	status := respond.StatusOf(err)
	doc := document{kind: schema.GroupVersionKind{Version: "v1", Kind: "Status"}, value: status, message: status.Marshal}
	if err := s.write(watch.Error, doc); err != nil {
		return err
	}
	return s.flush()
}

func (s *stream) document(o object) (document, error) {
	switch s.rep.form {
	case metadataForm:
		return metadataDocument(o, s.rep.version), nil
	case tableForm:
		meta := metav1.ListMeta{ResourceVersion: o.GetResourceVersion()}
		table, err := newTable(s.resource, s.rep.version, meta, []object{o}, s.include)
		if err != nil {
			return document{}, err
		}
		if s.headed {
			table.ColumnDefinitions = nil
		}
		s.headed = true
		return document{kind: metaKind("Table", s.rep.version), value: table}, nil
	}
	return objectDocument(o), nil
}

func (s *stream) write(kind watch.EventType, doc document) error {
	var raw bytes.Buffer
	if err := doc.encode(&raw, s.rep.media); err != nil {
		return err
	}
	frame, err := s.frame(kind, raw.Bytes())
	if err != nil {
		return err
	}
	return s.send(frame)
}

// frame wraps an encoded object as an event.
func (s *stream) frame(kind watch.EventType, raw []byte) (frame []byte, err error) {
	event := metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: raw}}
	if s.rep.media == respond.MediaProtobuf {
		frame, err = event.Marshal()
	} else {
		frame, err = json.Marshal(event)
	}
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	return frame, nil
}
