package sharedwatch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"go.uber.org/goleak"
	"testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// change is an event in the server's history.
type change struct {
	version int
	kind    string
	name    string
}

func (c change) object() string {
	return fmt.Sprintf(`{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":%q,"namespace":"a","resourceVersion":"%d"}}`, c.name, c.version)
}

func (c change) line() string { return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", c.kind, c.object()) }

// server is an extension server that stores widgets. Its resource versions sometimes grow by more than one, as in etcd, where other
// kinds use versions too.
type server struct {
	mu        sync.Mutex // guards the fields below
	version   int
	compacted int // Versions up to this one are compacted.
	changes   []change
	objects   map[string]change
	watchers  map[*watcher]bool
	down      bool
	requests  map[string]int                      // by kind
	refuses   int                                 // the status of all responses; 0: normal responses
	lists     string                              // the body of list responses
	body      func(context.Context) io.ReadCloser // the body of list responses, except for reads of the version
	names     func(int) string
}

type watcher struct {
	server *server
	w      *io.PipeWriter
	queue  chan string
}

func newServer() *server {
	return &server{
		version: 100, compacted: 50, objects: map[string]change{}, watchers: map[*watcher]bool{}, requests: map[string]int{}, names: strconv.Itoa,
	}
}

// set stores an object, remove deletes one.
func (s *server) set(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := "MODIFIED"
	if _, ok := s.objects[name]; !ok {
		kind = "ADDED"
	}
	s.change(kind, name)
}

func (s *server) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.objects[name]; ok {
		s.change("DELETED", name)
	}
}

// change must be called with mu held.
func (s *server) change(kind, name string) {
	s.version++
	c := change{s.version, kind, name}
	s.changes = append(s.changes, c)
	if s.objects[name] = c; kind == "DELETED" {
		delete(s.objects, name)
	}
	for w := range s.watchers {
		w.queue <- c.line()
	}
}

// other changes an object of another kind.
func (s *server) other() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
}

// bookmark sends a bookmark to all watchers.
func (s *server) bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		w.queue <- fmt.Sprintf(`{"type":"BOOKMARK","object":{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"resourceVersion":"%d"}}}`+"\n", s.version)
	}
}

// compact removes all changes. interrupt ends all watches.
func (s *server) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = s.version
}

func (s *server) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		close(w.queue)
		delete(s.watchers, w)
	}
}

func (s *server) setDown(down bool) {
	s.mu.Lock()
	s.down = down
	s.mu.Unlock()
	s.interrupt()
}

// state returns the version and the objects by name.
func (s *server) state() (version int, objects map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	objects = map[string]int{}
	for name, c := range s.objects {
		objects[name] = c.version
	}
	return s.version, objects
}

// after returns the changes after a version.
func (s *server) after(version int) []change {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range s.changes {
		if c.version > version {
			return append([]change(nil), s.changes[i:]...)
		}
	}
	return nil
}

func answer(code int, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || r.Header.Get("X-Remote-User") != "system:kube-aggregator" {
		return nil, errors.New("a bad request")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := "list"
	switch {
	case q.Has("watch"):
		kind = "watch"
	case q.Get("limit") == "1":
		kind = "version"
	}
	s.requests[kind]++
	if s.down {
		return nil, errors.New("it is down")
	}
	if s.refuses != 0 {
		return answer(s.refuses, io.NopCloser(bytes.NewReader(nil))), nil
	}
	if kind == "list" && s.body != nil {
		return answer(200, s.body(r.Context())), nil
	}
	if kind != "watch" {
		body := s.lists
		if body == "" {
			items := []json.RawMessage{}
			for _, c := range s.objects {
				items = append(items, json.RawMessage(c.object()))
			}
			text, _ := json.Marshal(items) // raw messages that are valid JSON
			body = fmt.Sprintf(`{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"%s"},"items":%s}`, s.names(s.version), text)
		}
		return answer(200, io.NopCloser(bytes.NewReader([]byte(body)))), nil
	}
	from, err := strconv.Atoi(q.Get("resourceVersion"))
	if err != nil {
		return answer(400, io.NopCloser(bytes.NewReader(nil))), nil
	}
	read, write := io.Pipe()
	w := &watcher{server: s, w: write, queue: make(chan string, 100_000)}
	if from < s.compacted {
		w.queue <- `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410,"reason":"Expired","message":"too old"}}` + "\n"
		close(w.queue)
	} else {
		for _, c := range s.changes {
			if c.version > from {
				w.queue <- c.line()
			}
		}
		s.watchers[w] = true
	}
	go func() {
		defer write.Close()
		for {
			select {
			case line, ok := <-w.queue:
				if !ok {
					return
				}
				if _, err := write.Write([]byte(line)); err != nil {
					s.forget(w)
					return
				}
			case <-r.Context().Done():
				s.forget(w)
				_ = write.CloseWithError(r.Context().Err()) // CloseWithError never fails.
				return
			}
		}
	}()
	return answer(200, read), nil
}

func (s *server) forget(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers, w)
}
