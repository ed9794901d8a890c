package sharedwatch

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
)

// frame is an event as received, with its newline.
type frame struct {
	line     []byte
	version  string // the resource version of its object
	bookmark bool
}

// overhead is the approximate memory of a frame or an object in addition to its bytes.
const overhead = 96

func (f *frame) size() int64 { return int64(len(f.line)) + overhead }

// objectKey identifies an object of a collection.
type objectKey struct{ namespace, name string }

// history contains the recent events of a collection, and its objects. A place is the number of frames since the beginning
// of the stream.
type history struct {
	maxFrames int
	maxBytes  int64

	base   string // resource version before the first kept frame
	first  int64  // place of the first kept frame
	frames []frame
	bytes  int64 // of frames
	// reached is the newest resource version of a list of the extension server. Frames may be newer.
	reached string

	objects    map[objectKey]json.RawMessage // nil if not known
	version    string                        // of objects
	ahead      string                        // if not empty, objects include everything up to this version, regardless of the frames
	size       int64                         // of objects
	kind       string                        // of the objects, as in the list
	apiVersion string
}

// latest returns the resource version of the last frame.
func (h *history) latest() string {
	if len(h.frames) == 0 {
		return h.base
	}
	return h.frames[len(h.frames)-1].version
}

// end returns the place of the next frame.
func (h *history) end() int64 { return h.first + int64(len(h.frames)) }

// event is a parsed frame.
type event struct {
	frame
	kind   watch.EventType
	key    objectKey
	object json.RawMessage
	status *metav1.Status // of an ERROR event
}

var errNotAnEvent = errors.New("what the extension server sent is not a watch event with a resource version")

// parse parses one line of a watch. It retains the line.
func parse(line []byte) (*event, error) {
	var e struct {
		Type   watch.EventType
		Object json.RawMessage
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return nil, errNotAnEvent
	}
	if e.Type == watch.Error {
		status := &metav1.Status{}
		if json.Unmarshal(e.Object, status) != nil {
			return nil, errNotAnEvent
		}
		return &event{kind: e.Type, status: status}, nil
	}
	var o struct {
		Metadata struct{ Namespace, Name, ResourceVersion string }
	}
	known := e.Type == watch.Added || e.Type == watch.Modified || e.Type == watch.Deleted || e.Type == watch.Bookmark
	if !known || json.Unmarshal(e.Object, &o) != nil || o.Metadata.ResourceVersion == "" {
		return nil, errNotAnEvent
	}
	return &event{
		frame: frame{line: line, version: o.Metadata.ResourceVersion, bookmark: e.Type == watch.Bookmark}, kind: e.Type,
		key: objectKey{o.Metadata.Namespace, o.Metadata.Name}, object: e.Object,
	}, nil
}

// add appends an event and applies it to the objects.
func (h *history) add(e *event) {
	h.frames = append(h.frames, e.frame)
	h.bytes += e.size()
	h.trim()
	if h.objects == nil || h.ahead != "" && hasReceived(e.version, h.ahead) {
		return
	}
	h.ahead = ""
	h.apply(e)
}

// trim drops the oldest frames, except the last one, until the limits hold.
func (h *history) trim() {
	for len(h.frames) > 1 && (len(h.frames) > h.maxFrames || h.bytes > h.maxBytes) {
		h.base = h.frames[0].version
		h.bytes -= h.frames[0].size()
		h.frames[0] = frame{}
		h.frames = h.frames[1:]
		h.first++
	}
}

// reach records the resource version of a list.
func (h *history) reach(version string) {
	if h.reached == "" || !hasReceived(version, h.reached) {
		h.reached = version
	}
}

// hasReached reports whether the extension server is known to have reached a resource version, or the stream cannot place
// it.
func (h *history) hasReached(version string) bool {
	at, err := h.after(version)
	return err != nil || at.has == "" || hasReceived(version, h.reached)
}

// apply applies an event to the objects.
func (h *history) apply(e *event) {
	h.version = e.version
	if e.bookmark {
		return
	}
	if before, ok := h.objects[e.key]; ok {
		h.size -= int64(len(before)) + overhead
		delete(h.objects, e.key)
	}
	if e.kind != watch.Deleted {
		h.objects[e.key] = e.object
		h.size += int64(len(e.object)) + overhead
	}
}

// setObjects sets the objects from a list and applies the events after it.
func (h *history) setObjects(l *list) error {
	at, err := h.after(l.version)
	if err != nil {
		return err
	}
	h.objects, h.version, h.kind, h.apiVersion = map[objectKey]json.RawMessage{}, l.version, l.kind, l.apiVersion
	h.ahead, h.size = at.has, 0
	for key, object := range l.objects {
		h.objects[key] = object
		h.size += int64(len(object)) + overhead
	}
	for i := at.place - h.first; i < int64(len(h.frames)); i++ {
		e, err := parse(h.frames[i].line)
		if err != nil {
			h.objects, h.size = nil, 0
			return err // it was parsed before
		}
		h.apply(e)
	}
	return nil
}

// hasReceived reports whether a client with the resource version has has already received the event with the resource version
// event.
func hasReceived(event, has string) bool {
	if event == has {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(event, has)
	return err == nil && order <= 0
}

// cursor is the position of a client.
type cursor struct {
	place int64
	// has, if not empty, is a resource version up to which the client has received everything, regardless of its place.
	has string
}

// errNotPlaced is the error for a resource version that is unknown to the stream, or older than its frames.
var errNotPlaced = errors.New("the resource version is not one that the shared watch has")

// after returns the cursor of a client with the given resource version.
func (h *history) after(version string) (cursor, error) {
	for i, f := range slices.Backward(h.frames) {
		if f.version == version {
			return cursor{place: h.first + int64(i) + 1}, nil
		}
	}
	if version == h.base {
		return cursor{place: h.first}, nil
	}
	order, err := resourceversion.CompareResourceVersion(version, h.base)
	if err != nil || order < 0 {
		return cursor{}, errNotPlaced
	}
	for i, f := range h.frames {
		order, err := resourceversion.CompareResourceVersion(f.version, version)
		if err != nil {
			return cursor{}, errNotPlaced
		}
		if order > 0 {
			return cursor{place: h.first + int64(i)}, nil
		}
	}
	// It is newer than all frames, and the next frame may be older.
	return cursor{place: h.end(), has: version}, nil
}

// maxBatch is the maximum number of frames that a client reads at a time, and maxBatchBytes the limit of their bytes,
// except for the first one.
const (
	maxBatch      = 512
	maxBatchBytes = 256 << 10
)

// errLeftBehind is the error for a client that was too slow for the ring.
var errLeftBehind = errors.New("the client was too slow")

// next appends the lines that follow a cursor, and moves it.
func (h *history) next(c *cursor, bookmarks bool, lines [][]byte) ([][]byte, error) {
	if c.place < h.first {
		return lines, errLeftBehind
	}
	size := 0
	for i := c.place - h.first; i < int64(len(h.frames)) && len(lines) < maxBatch; i++ {
		f := &h.frames[i]
		if size += len(f.line); size > maxBatchBytes && len(lines) > 0 {
			break
		}
		c.place++
		if c.has != "" {
			if hasReceived(f.version, c.has) {
				continue
			}
			c.has = ""
		}
		if !f.bookmark || bookmarks {
			lines = append(lines, f.line)
		}
	}
	return lines, nil
}

// initial returns the objects that a client receives as initial events, the bookmark that ends them, and the client's
// cursor. The objects are not copied: a client may read them slowly.
func (h *history) initial(end bool) (objects []json.RawMessage, bookmark []byte, at cursor) {
	objects = make([]json.RawMessage, 0, len(h.objects))
	for _, object := range h.objects {
		objects = append(objects, object)
	}
	if end {
		bookmark = h.endBookmark()
	}
	return objects, bookmark, cursor{place: h.end(), has: h.ahead}
}

const added = `{"type":"ADDED","object":`

// endBookmark returns the bookmark that ends the initial events (KEP-3157).
func (h *history) endBookmark() []byte {
	var o struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			ResourceVersion   string            `json:"resourceVersion"`
			CreationTimestamp *string           `json:"creationTimestamp"`
			Annotations       map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	o.APIVersion, o.Kind = h.apiVersion, h.kind
	o.Metadata.ResourceVersion, o.Metadata.Annotations = h.version, map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	return eventLine(watch.Bookmark, o)
}

func eventLine(kind watch.EventType, object any) []byte {
	body, err := json.Marshal(struct {
		Type   watch.EventType `json:"type"`
		Object any             `json:"object"`
	}{kind, object})
	if err != nil {
		return nil // plain structs can always be encoded
	}
	return append(body, '\n')
}

// expired returns the event that ends the watch of a client that must list again.
func expired(message string) []byte {
	return eventLine(watch.Error, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Message: message,
		Reason: metav1.StatusReasonExpired, Code: http.StatusGone,
	})
}
