package faulty

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// longestWatch bounds a watch without timeoutSeconds.
const longestWatch = 10 * time.Minute

// watch streams changes. It serves initial events and their bookmark, which current informers request.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, namespace string) {
	q := r.URL.Query()
	from, _ := strconv.ParseInt(q.Get("resourceVersion"), 10, 64) // empty, like 0, means any revision
	length := longestWatch
	if n, err := strconv.Atoi(q.Get("timeoutSeconds")); err == nil && n > 0 {
		length = min(length, time.Duration(n)*time.Second)
	}
	stream := &stream{server: s, writer: w, request: r}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush() // the client waits for the headers

	initial := q.Get("sendInitialEvents") == "true"
	if fault, _ := s.now(); initial && fault == NoInitialEvents {
		initial = false
		_, from = s.store.list(namespace)
	}
	if initial || from == 0 {
		found, revision := s.store.list(namespace)
		from = revision
		for _, o := range found {
			stream.send("ADDED", o)
		}
		if initial {
			stream.bookmark(revision)
		}
	}
	end := time.NewTimer(length)
	defer end.Stop()
	for stream.failed == nil {
		changes, now, turn, gone := s.store.since(from)
		if gone {
			stream.expired()
			return
		}
		for _, c := range changes {
			if namespace == "" || c.Object.Namespace == namespace {
				stream.send(c.Type, c.Object)
			}
		}
		from = now
		select {
		case <-turn:
		case <-end.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// stream is one watch. After an error it sends nothing.
type stream struct {
	server  *Server
	writer  http.ResponseWriter
	request *http.Request
	failed  error
}

func (t *stream) send(kind string, o object) { t.event(kind, t.server.typed(t.request, o)) }

func (t *stream) bookmark(revision int64) {
	t.send("BOOKMARK", object{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: strconv.FormatInt(revision, 10),
		Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}})
}

func (t *stream) expired() {
	t.event("ERROR", metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version",
	})
}

func (t *stream) event(kind string, o any) {
	if t.failed != nil {
		return
	}
	var line []byte
	line, t.failed = json.Marshal(map[string]any{"type": kind, "object": o})
	if t.failed == nil {
		_, t.failed = t.writer.Write(append(line, '\n'))
	}
	if t.failed == nil {
		t.failed = http.NewResponseController(t.writer).Flush()
	}
}
