package console

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"
)

const (
	// maxStreams bounds the number of open pages.
	maxStreams = 8
	// streamGap is the minimum interval between two updates of a stream.
	streamGap = 250 * time.Millisecond
	// heartbeat is the interval of messages on an idle stream, by which the page and the console detect that the
	// other one is gone.
	heartbeat = 15 * time.Second
	// writeTimeout bounds the time in which a browser must read.
	writeTimeout = 10 * time.Second
)

// seen holds the versions that one stream has sent.
type seen struct {
	rows     map[string]int
	sections map[string]int
}

// changes lists changed rows of the list of APIServices.
type changes struct {
	Set  []*row   `json:"set,omitempty"`
	Gone []string `json:"gone,omitempty"`
	// Complete is true if this is the whole list.
	Complete bool `json:"complete,omitempty"`
}

type message struct {
	event string
	body  []byte
}

// stream sends the current state and then the changes, as server-sent events.
func (c *Console) stream(w http.ResponseWriter, r *http.Request) {
	select {
	case c.streams <- struct{}{}:
		defer func() { <-c.streams }()
	default:
		c.fail(w, http.StatusServiceUnavailable, fmt.Sprintf("%d pages are open: close one", maxStreams))
		return
	}
	out := http.NewResponseController(w)
	// The server's read timeout would end the stream, because net/http's server keeps reading the connection to
	// detect that the page is gone.
	if err := out.SetReadDeadline(time.Time{}); err != nil {
		c.fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	sent := seen{rows: nil, sections: map[string]int{}}
	beat := time.NewTimer(heartbeat)
	defer beat.Stop()
	gap := time.NewTimer(0)
	defer gap.Stop()
	for {
		messages, changed := c.state.newer(&sent)
		if !write(w, out, messages) {
			return
		}
		gap.Reset(streamGap)
		select {
		case <-gap.C:
		case <-r.Context().Done():
			return
		}
		beat.Reset(heartbeat)
		select {
		case <-changed:
		case <-beat.C:
			if !write(w, out, []message{{event: "beat", body: []byte("{}")}}) {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// write sends messages. It returns false if the page is gone.
func write(w http.ResponseWriter, out *http.ResponseController, messages []message) bool {
	if out.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil {
		return false
	}
	for _, m := range messages {
		if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", m.event, m.body); err != nil { // JSON contains no line breaks
			return false
		}
	}
	return out.Flush() == nil
}

// newer returns the changes that a stream has not sent yet, and a channel that is closed on the next change.
func (s *state) newer(sent *seen) (messages []message, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.sections)) {
		if section := s.sections[name]; name != sectionTick && section.version != sent.sections[name] {
			sent.sections[name] = section.version
			messages = append(messages, message{name, section.body})
		}
	}
	if body := s.newerRows(sent); body != nil {
		messages = append(messages, message{"apiservices", body})
	}
	// The tick comes last, because the page draws when it receives it.
	if tick := s.sections[sectionTick]; tick.version != sent.sections[sectionTick] {
		sent.sections[sectionTick] = tick.version
		messages = append(messages, message{sectionTick, tick.body})
	}
	return messages, s.changed
}

func (s *state) newerRows(sent *seen) []byte {
	if !s.listed {
		return nil
	}
	out := changes{Complete: sent.rows == nil}
	if sent.rows == nil {
		sent.rows = map[string]int{}
	}
	for name, version := range s.versions {
		if sent.rows[name] != version {
			sent.rows[name] = version
			out.Set = append(out.Set, s.rows[name])
		}
	}
	for name := range sent.rows {
		if s.rows[name] == nil {
			delete(sent.rows, name)
			out.Gone = append(out.Gone, name)
		}
	}
	if len(out.Set)+len(out.Gone) == 0 && !out.Complete {
		return nil
	}
	body, err := json.Marshal(out)
	if err != nil {
		return nil // unreachable: strings and times always marshal
	}
	return body
}
