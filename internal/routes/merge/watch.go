package merge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	kjson "sigs.k8s.io/json"

	"portico.dev/internal/respond"
	"portico.dev/internal/run"
)

const (
	// maxWrite is the approximate size of a write.
	maxWrite = 512 << 10
	// firstRetry and maxRetry are the minimum and maximum pause before the watch of a source is restarted after a broken
	// connection. After giveUp the client's watch ends, and the client resumes from its last bookmark.
	firstRetry = 100 * time.Millisecond
	maxRetry   = 2 * time.Second
	giveUp     = 10 * time.Second
	// waiting is the number of events that may wait for a client.
	waiting = 64
)

// event is a line of a watch.
type event struct {
	source int
	kind   watch.EventType
	object json.RawMessage
	// version is the resource version after the event. owned reports whether the client gets the event.
	version string
	owned   bool
	line    []byte
	taken   int64 // bytes charged to the room of the stream
	err     error // the watch of the source has ended
}

// watch serves a watch. It returns an error only if nothing was written.
func (m *Merger) watch(w http.ResponseWriter, r *http.Request, c *Collection, q *query) error {
	ctx, cancel := context.WithTimeout(r.Context(), q.lifetime)
	defer cancel()
	s := &stream{writer: w, collection: c, query: q, versions: q.versions, room: m.newRoom(q.user)}
	defer s.room.free()
	if q.initial || q.newest {
		if err := s.start(ctx, m); err != nil {
			return err
		}
	}
	return s.follow(ctx)
}

// stream is the watch of one client.
type stream struct {
	writer     http.ResponseWriter
	collection *Collection
	query      *query
	versions   []string
	room       *room // for a part of the initial list, then for events
	columns    columns
	begun      bool
	out        bytes.Buffer
	// kind and apiVersion of the last object, for bookmarks.
	kind, apiVersion string
}

// start lists the existing objects, and sends them unless the watch begins now.
func (s *stream) start(ctx context.Context, m *Merger) error {
	q := *s.query
	q.limit = m.initialPart
	if s.query.newest {
		q.limit = 1
	}
	f := q.form
	for {
		leave, err := m.enter(ctx, s.collection.ID, q.user)
		if err != nil {
			return s.fail(ctx, err)
		}
		s.room.free()
		p, err := s.collection.part(ctx, &q, f, s.room)
		leave() // the client may be slow
		if errors.Is(err, errMixed) && q.plain && !s.begun {
			f = q.objects()
			continue
		}
		if err != nil {
			return s.fail(ctx, err)
		}
		s.versions, s.apiVersion = p.versions, p.first.APIVersion
		s.kind = strings.TrimSuffix(p.first.Kind, "List")
		if s.query.newest {
			s.room.free()
			return nil
		}
		if err := s.sendObjects(ctx, p); err != nil {
			return err
		}
		if q.token = p.token; q.token == "" {
			break
		}
	}
	if s.query.bookmarks {
		s.bookmark(s.query.initialEnd)
	}
	s.flush()
	s.room.free()
	return nil
}

// sendObjects sends listed objects as added.
func (s *stream) sendObjects(ctx context.Context, p *page) error {
	for _, item := range p.items {
		var about metav1.TypeMeta
		if err := kjson.UnmarshalCaseSensitivePreserveInts(item, &about); err == nil && about.Kind == "" {
			item = withKind(item, s.kind, s.apiVersion) // items of lists may lack kind and apiVersion, objects of events must not
		}
		s.add(watch.Added, item)
	}
	for _, r := range p.rows {
		table, err := encode(tableOf(p.first, &s.columns, p.columns.definitions, r))
		if err != nil {
			return s.fail(ctx, err)
		}
		s.add(watch.Added, bytes.TrimSpace(table))
	}
	s.flush()
	return nil
}

// withKind adds kind and apiVersion to an object without them.
func withKind(object json.RawMessage, kind, apiVersion string) json.RawMessage {
	head, err := json.Marshal(metav1.TypeMeta{Kind: kind, APIVersion: apiVersion})
	body := bytes.TrimSpace(object)
	if err != nil || len(body) < 2 || body[0] != '{' {
		return object
	}
	if rest := bytes.TrimSpace(body[1:]); rest[0] != '}' {
		return append(append(head[:len(head)-1:len(head)-1], ','), rest...)
	}
	return head
}

type tableObject struct {
	Kind       string            `json:"kind"`
	APIVersion string            `json:"apiVersion"`
	Metadata   listMetadata      `json:"metadata"`
	Columns    []json.RawMessage `json:"columnDefinitions"`
	Rows       []row             `json:"rows"`
}

// tableOf returns the Table of an event. Only the first Table of a watch contains the columns, as in kube-apiserver.
func tableOf(like *document, c *columns, definitions []json.RawMessage, rows ...row) tableObject {
	order := c.adopt(definitions)
	for i := range rows {
		rows[i].Cells = reorder(rows[i].Cells, order)
	}
	t := tableObject{Kind: like.Kind, APIVersion: like.APIVersion, Metadata: listMetadata{ResourceVersion: like.Metadata.ResourceVersion}, Columns: []json.RawMessage{}, Rows: rows}
	if !c.sent {
		t.Columns, c.sent = c.definitions, true
	}
	return t
}

// follow sends the events of all sources until one of them or the client ends the watch.
func (s *stream) follow(ctx context.Context) error {
	following, cancel := context.WithCancel(ctx)
	events := make(chan event, waiting)
	var sources sync.WaitGroup
	defer sources.Wait()
	defer cancel()
	first := make([]*http.Response, len(s.collection.Sources))
	for i := range first {
		resp, err := s.open(following, i, s.versions[i])
		if err != nil {
			for _, opened := range first[:i] {
				_ = opened.Body.Close() // nothing was read from it
			}
			return s.fail(ctx, err)
		}
		first[i] = resp
	}
	for i := range first {
		version := s.versions[i]
		sources.Go(func() { s.read(following, i, version, first[i], events) })
	}
	s.begin()
	s.flush()
	for {
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), ErrMoved) {
				s.sendError(Expired("resource version"))
			}
			return nil
		case e := <-events:
			if !s.takeAll(e, events) {
				return nil
			}
		}
	}
}

// takeAll sends an event and all waiting ones, followed by one bookmark. It returns false if the watch is over.
func (s *stream) takeAll(e event, events <-chan event) bool {
	moved, taken := false, int64(0)
	defer func() { s.room.give(taken) }() // the client has the events
	for {
		if e.err != nil {
			s.flushWithBookmark(moved)
			s.end(e.err)
			return false
		}
		s.versions[e.source] = e.version
		moved = moved || e.owned || e.kind == watch.Bookmark
		s.take(e)
		taken += e.taken
		if s.out.Len() > maxWrite {
			break
		}
		select {
		case e = <-events:
			continue
		default:
		}
		break
	}
	s.flushWithBookmark(moved)
	return true
}

func (s *stream) flushWithBookmark(moved bool) {
	if moved && s.query.bookmarks && s.kind != "" {
		s.bookmark(false)
	}
	s.flush()
}

// take sends an owned event unchanged, except for the columns of Tables.
func (s *stream) take(e event) {
	d, err := parse(e.object)
	if err != nil {
		return // it was parsed before
	}
	if !d.isTable() {
		s.kind, s.apiVersion = d.Kind, d.APIVersion
	}
	switch {
	case !e.owned:
		return
	case !d.isTable():
		s.out.Write(e.line)
		return
	}
	if len(d.Columns) == 0 {
		d.Columns = s.columns.definitions
	}
	table, err := encode(tableOf(d, &s.columns, d.Columns, d.Rows...))
	if err == nil {
		s.add(e.kind, bytes.TrimSpace(table))
	}
}

func (s *stream) add(kind watch.EventType, object json.RawMessage) {
	s.out.WriteString(`{"type":"` + string(kind) + `","object":`)
	s.out.Write(object)
	s.out.WriteString("}\n")
}

// bookmark sends the position to the client. A watch of Tables has no bookmarks, because its client only displays them.
func (s *stream) bookmark(initialEnd bool) {
	if s.query.table {
		return
	}
	var o struct {
		metav1.TypeMeta
		Metadata struct {
			ResourceVersion string            `json:"resourceVersion"`
			Annotations     map[string]string `json:"annotations,omitempty"`
			Created         *metav1.Time      `json:"creationTimestamp"`
		} `json:"metadata"`
	}
	o.Kind, o.APIVersion, o.Metadata.ResourceVersion = s.kind, s.apiVersion, s.collection.position(s.versions)
	if initialEnd {
		o.Metadata.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	if object, err := encode(o); err == nil {
		s.add(watch.Bookmark, bytes.TrimSpace(object))
	}
}

func (s *stream) begin() {
	if !s.begun {
		s.begun = true
		s.writer.Header().Set("Content-Type", respond.MediaJSON)
		s.writer.WriteHeader(http.StatusOK)
	}
}

func (s *stream) flush() {
	s.begin()
	if s.out.Len() > 0 {
		_, _ = s.writer.Write(s.out.Bytes()) // the context ends if the client has disconnected
		s.out.Reset()
	}
	if f, ok := s.writer.(http.Flusher); ok {
		f.Flush()
	}
}

// fail ends a watch with an error, before or after its start. If the objects have moved, the client gets 410 regardless of err.
func (s *stream) fail(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), ErrMoved) {
		err = Expired("resource version")
	}
	if !s.begun {
		return err
	}
	s.end(err)
	return nil
}

// end ends a watch. An error from a source ends the entire watch. A broken connection ends it without an error, and the client
// resumes from its position.
func (s *stream) end(err error) {
	var refused *refusedError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &refused):
		if isJSON(refused.contentType) && json.Valid(refused.body) {
			s.add(watch.Error, bytes.TrimSpace(refused.body))
			s.flush()
		}
	case errors.As(err, &status):
		s.sendError(err)
	}
}

func (s *stream) sendError(err error) {
	object, encodeErr := encode(respond.StatusOf(err))
	if encodeErr == nil {
		s.add(watch.Error, bytes.TrimSpace(object))
		s.flush()
	}
}

// open starts the watch of a source.
func (s *stream) open(ctx context.Context, source int, version string) (*http.Response, error) {
	seconds := ""
	if until, ok := ctx.Deadline(); ok { // slightly longer, so that the client's watch ends first
		seconds = fmt.Sprint(int(time.Until(until)/time.Second) + 5)
	}
	return s.collection.Sources[source].get(ctx, true, s.query.accept, s.query.with("watch", "true", "allowWatchBookmarks", "true",
		"resourceVersion", version, "timeoutSeconds", seconds))
}

// read reads the watch of a source, and restarts it after a broken connection.
func (s *stream) read(ctx context.Context, source int, version string, resp *http.Response, events chan<- event) {
	failing, pause := time.Time{}, firstRetry
	for {
		began, more := time.Now(), false
		var err error
		if resp != nil {
			version, more, err = s.readOnce(ctx, source, version, resp, events)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				s.sendEnd(ctx, source, err, events)
				return
			}
		}
		if more || resp != nil && time.Since(began) > maxRetry {
			failing, pause = time.Time{}, firstRetry
		} else if failing.IsZero() {
			failing = began
		}
		if !failing.IsZero() && time.Since(failing) > giveUp || !run.Pause(ctx, pause) {
			s.sendEnd(ctx, source, io.ErrUnexpectedEOF, events)
			return
		}
		pause = min(2*pause, maxRetry)
		resp, err = s.open(ctx, source, version)
		var refused *refusedError
		if errors.As(err, &refused) && refused.code < http.StatusInternalServerError && refused.code != http.StatusTooManyRequests {
			s.sendEnd(ctx, source, err, events)
			return
		}
	}
}

func (s *stream) sendEnd(ctx context.Context, source int, err error, events chan<- event) {
	select {
	case events <- event{source: source, err: err}:
	case <-ctx.Done():
	}
}

// readOnce reads a watch to its end. An error ends the client's entire watch.
func (s *stream) readOnce(ctx context.Context, source int, version string, resp *http.Response, events chan<- event) (latest string, more bool, err error) {
	defer func() { _ = resp.Body.Close() }() // read errors have already been handled
	lines := bufio.NewReaderSize(resp.Body, 4<<10)
	for {
		line, taken, err := s.readLine(lines)
		if err != nil {
			s.room.give(taken)
		}
		if apierrors.IsTooManyRequests(err) {
			return version, more, err
		}
		if errors.Is(err, errTooLarge) {
			return version, more, apierrors.NewInternalError(fmt.Errorf("backend %s sent an event of more than %d MiB", s.collection.Sources[source].Name, maxEvent>>20))
		}
		if err != nil {
			return version, more, nil
		}
		if len(bytes.TrimSpace(line)) == 0 {
			s.room.give(taken)
			continue
		}
		e, err := s.parse(source, line)
		if err != nil {
			s.room.give(taken)
			return version, more, err
		}
		e.taken = taken
		version, more = e.version, true
		select {
		case events <- e:
		case <-ctx.Done():
			return version, more, nil
		}
	}
}

// readLine reads a line into newly allocated memory. A large line is charged to the room until the client has it.
func (s *stream) readLine(from *bufio.Reader) (line []byte, taken int64, err error) {
	for {
		part, err := from.ReadSlice('\n')
		if len(line)+len(part) > maxEvent {
			return nil, taken, errTooLarge
		}
		if len(line)+len(part) > largeEvent {
			n := eventFactor * int64(len(part))
			if err := s.room.take(n); err != nil {
				return nil, taken, err
			}
			taken += n
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, taken, err
		}
	}
}

// parse parses an event. An event of type ERROR is returned as an error.
func (s *stream) parse(source int, line []byte) (event, error) {
	from := &s.collection.Sources[source]
	var w struct {
		Type   watch.EventType `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	bad := func(why string) error {
		return apierrors.NewInternalError(fmt.Errorf("backend %s sent %s in a watch", from.Name, why))
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(line, &w); err != nil {
		return event{}, bad("what is no event")
	}
	e := event{source: source, kind: w.Type, object: w.Object, line: line}
	switch w.Type {
	case watch.Error:
		return e, &refusedError{source: from.Name, contentType: respond.MediaJSON, body: w.Object}
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
	default:
		return e, bad("an event of an unknown type")
	}
	d, err := parse(w.Object)
	if err != nil {
		return e, bad("an event without an object")
	}
	about := d.Metadata
	if d.isTable() && len(d.Rows) > 0 {
		if about, err = metadataOf(d.Rows[0].Object); err != nil {
			return e, bad("a row without an object")
		}
	}
	if e.version = about.ResourceVersion; e.version == "" {
		return e, bad("an object without a resource version")
	}
	e.owned = w.Type != watch.Bookmark && from.Owns(about.Namespace)
	return e, nil
}
