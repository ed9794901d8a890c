package semantics

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// event is one line of a watch.
type event struct {
	Type   string                    `json:"type"`
	Object unstructured.Unstructured `json:"object"`
}

func (e event) String() string { return e.Type + " " + e.Object.GetName() }

func (e event) initialEventsEnd() bool {
	return e.Type == "BOOKMARK" && e.Object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

// stream is a watch in JSON that is under way.
type stream struct {
	t      *testing.T
	cancel context.CancelFunc
	body   io.ReadCloser
	lines  *json.Decoder
}

// openWatch begins a watch; path has its query.
func openWatch(t *testing.T, path string, headers ...string) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, front.config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := front.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body) // the readable part
		t.Fatalf("GET of the watch %s = %d %s, want 200", path, response.StatusCode, body)
	}
	s := &stream{t, cancel, response.Body, json.NewDecoder(response.Body)}
	t.Cleanup(s.stop)
	return s
}

func (s *stream) stop() {
	s.cancel()
	_ = s.body.Close() // it was cut off
}

// read returns io.EOF when the server has ended the watch.
func (s *stream) read() (event, error) {
	var e event
	err := s.lines.Decode(&e)
	return e, err
}

// next returns the next event, except for periodic bookmarks.
func (s *stream) next() event {
	s.t.Helper()
	for {
		e, err := s.read()
		if err != nil {
			s.t.Fatalf("the watch ended with %v, want an event", err)
		}
		if e.Type != "BOOKMARK" || e.initialEventsEnd() {
			return e
		}
	}
}

// rest is every event until the server ends the watch.
func (s *stream) rest() (all []event) {
	s.t.Helper()
	for {
		e, err := s.read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, e)
	}
}
