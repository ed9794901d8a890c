package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxEvents bounds the number of events read from one watch.
const maxEvents = 100_000

const (
	// watchSeconds is the timeoutSeconds parameter of a watch.
	watchSeconds = 1
	// awaitSeconds is the same for a watch that ends early at an expected event. It is longer because a busy server
	// may need time.
	awaitSeconds = 4
)

// event is one event of a watch.
type event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
	object
	status metav1.Status
}

// stream is a completed watch.
type stream struct {
	// refused is the response if it is not 200.
	refused answer
	opened  bool
	headers http.Header
	events  []event
	// late is true if the server did not end the watch in time. err is set if the watch ended in an unexpected way.
	late bool
	err  error
}

// watch starts a short watch and reads it to its end, or until enough returns true.
func (c *caller) watch(ctx context.Context, path string, enough func(event) bool, accept string, pairs ...string) stream {
	seconds := watchSeconds
	if enough != nil {
		seconds = awaitSeconds
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout+time.Duration(seconds)*time.Second)
	defer cancel()
	q := question{path: path, accept: accept, query: query(append(pairs, "watch", "true", "timeoutSeconds", strconv.Itoa(seconds))...)}
	response, err := c.open(ctx, q)
	if err != nil {
		return stream{refused: answer{question: q, err: err}}
	}
	defer func() { _ = response.Body.Close() }()
	s := stream{headers: response.Header}
	if response.StatusCode != http.StatusOK {
		s.refused = answer{question: q, code: response.StatusCode, headers: response.Header}
		s.refused.body, s.refused.err = io.ReadAll(io.LimitReader(response.Body, maxBody))
		return s
	}
	s.opened = true
	s.read(ctx, response.Body, enough)
	return s
}

func (s *stream) read(ctx context.Context, body io.Reader, enough func(event) bool) {
	decoder := json.NewDecoder(body)
	for len(s.events) < maxEvents {
		var e event
		err := decoder.Decode(&e)
		switch {
		case errors.Is(err, io.EOF):
			return
		case ctx.Err() != nil:
			s.late = true
			return
		case err != nil:
			s.err = err
			return
		}
		if e.Type == "ERROR" {
			s.err = json.Unmarshal(e.Object, &e.status)
		} else {
			s.err = json.Unmarshal(e.Object, &e.object)
		}
		s.events = append(s.events, e)
		if s.err != nil || enough != nil && enough(e) {
			return
		}
	}
}

// problem returns an error if a watch was not served correctly.
func (s *stream) problem() error {
	switch {
	case !s.opened:
		return fmt.Errorf("%s", s.refused)
	case s.err != nil:
		return fmt.Errorf("the stream is not one of events: %w", s.err)
	}
	for _, e := range s.events {
		switch e.Type {
		case "ADDED", "MODIFIED", "DELETED", "BOOKMARK":
		case "ERROR":
			return fmt.Errorf("an ERROR event: %d %s", e.status.Code, e.status.Message)
		default:
			return fmt.Errorf("an event of type %q", e.Type)
		}
	}
	return nil
}
