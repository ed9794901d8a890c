package extension

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"portico.dev/internal/filters"
	"portico.dev/internal/respond"
)

// stream writes watch events in one representation.
type stream struct {
	eventWriter
	resource Resource
	rep      representation
	include  metav1.IncludeObjectPolicy
	headed   bool // the Table columns have been sent; they are sent once
}

// event writes one change of an object.
func (s *stream) event(kind watch.EventType, o object) error {
	doc, err := s.document(o)
	if err != nil {
		return err
	}
	return s.write(kind, doc)
}

// bookmark writes an object that contains only a version. initialEventsEnd marks the end of the initial events, for clients
// that requested it.
func (s *stream) bookmark(version uint64, initialEventsEnd bool) error {
	if s.rep.form == tableForm {
		// Send a table without rows, because the columns of an empty object could not be computed.
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

// frame encodes a watch event that contains the encoded object raw.
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

// writeTimeout ends watches of clients that have stopped reading. Without it, such watches would hold their memory until they
// time out.
const writeTimeout = 30 * time.Second

// eventWriter writes the frames of a watch.
type eventWriter interface {
	// open sends the response headers, before there are events.
	open(contentType string) error
	send(frame []byte) error
	flush() error
	// close ends the stream cleanly.
	close()
}

// bodyWriter writes frames to a response body: JSON documents are separated by newlines, protobuf documents have a length
// prefix.
type bodyWriter struct {
	w          http.ResponseWriter
	controller *http.ResponseController
	binary     bool
}

func newBodyWriter(w http.ResponseWriter, rep representation) *bodyWriter {
	return &bodyWriter{w: w, controller: http.NewResponseController(w), binary: rep.media == respond.MediaProtobuf}
}

func (s *bodyWriter) open(contentType string) error {
	h := s.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-cache, private")
	s.w.WriteHeader(http.StatusOK)
	return s.flush()
}

func (s *bodyWriter) send(frame []byte) error {
	if err := s.controller.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	if s.binary {
		frame = append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
	} else {
		frame = append(frame, '\n')
	}
	if _, err := s.w.Write(frame); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	return nil
}

// flush sends the buffered frames and clears the deadline, which would reset an idle HTTP/2 stream.
func (s *bodyWriter) flush() error {
	if err := s.controller.Flush(); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	return s.controller.SetWriteDeadline(time.Time{})
}

func (s *bodyWriter) close() {}

// webSocketWriter writes each frame as a WebSocket message, as text for JSON.
type webSocketWriter struct {
	w       http.ResponseWriter
	r       *http.Request
	message int
	ended   context.CancelFunc // called when the client disconnects

	conn *websocket.Conn // nil before open
	read chan struct{}   // closed when the read loop has ended
}

func newWebSocketWriter(w http.ResponseWriter, r *http.Request, rep representation, ended context.CancelFunc) *webSocketWriter {
	s := &webSocketWriter{w: w, r: r, message: websocket.TextMessage, ended: ended, read: make(chan struct{})}
	if rep.media == respond.MediaProtobuf {
		s.message = websocket.BinaryMessage
	}
	return s
}

// maxClientMessage limits the messages of a watch client, which are only control frames.
const maxClientMessage = 1 << 10

func (s *webSocketWriter) open(string) error {
	header := http.Header{"Audit-Id": s.w.Header()["Audit-Id"]}
	writeWarnings(s.r.Context(), header)
	upgrader := websocket.Upgrader{
		HandshakeTimeout: writeTimeout, CheckOrigin: isTrustedOrigin,
		Error: func(w http.ResponseWriter, r *http.Request, code int, reason error) {
			err := apierrors.NewGenericServerResponse(code, "watch", schema.GroupResource{}, "", reason.Error(), 0, false)
			err.ErrStatus.Message = "websocket: " + reason.Error()
			respond.Error(w, r, err)
		},
	}
	if offered := websocket.Subprotocols(s.r); len(offered) > 0 {
		upgrader.Subprotocols = offered[:1] // a browser fails if the server selects none of its offers
	}
	conn, err := upgrader.Upgrade(s.w, s.r, header)
	if err != nil {
		return fmt.Errorf("upgrade: %w", err)
	}
	s.conn = conn
	conn.SetReadLimit(maxClientMessage)
	go func() {
		defer close(s.read)
		defer s.ended()
		for {
			if _, _, err := conn.NextReader(); err != nil {
				return
			}
		}
	}()
	return nil
}

func (s *webSocketWriter) send(frame []byte) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	if err := s.conn.WriteMessage(s.message, frame); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	return nil
}

func (s *webSocketWriter) flush() error { return nil }

func (s *webSocketWriter) close() {
	if s.conn == nil {
		return
	}
	last := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	err := s.conn.WriteControl(websocket.CloseMessage, last, time.Now().Add(time.Second))
	if err != nil && !errors.Is(err, websocket.ErrCloseSent) {
		s.conn.NetConn().SetDeadline(time.Now()) // the client has disconnected; do not wait for its close frame
	}
	_ = s.conn.SetReadDeadline(time.Now().Add(time.Second))
	<-s.read
	_ = s.conn.Close()
}

// isTrustedOrigin reports whether the Origin of a WebSocket handshake is acceptable, so that a script of another site cannot
// use the client certificate of a browser that accesses this server directly. A front door has checked the Origin of the
// requests that it forwards. A script cannot set X-Forwarded-For on a handshake.
func isTrustedOrigin(r *http.Request) bool {
	return r.Header.Get("X-Forwarded-For") != "" || filters.MayUpgrade(r, nil)
}
