package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
)

const (
	// maxConverted bounds a list that is converted, or one event of a watch: it has to be held whole.
	maxConverted = 16 << 20
	// maxConversions bounds the lists that are held at one time, over all backends.
	maxConversions = 8
)

var (
	errTooLarge = &lie{
		reason: "TooLargeToConvert", code: http.StatusOK,
		text: "answered with more than 16 MiB, which is not converted; ask for it in parts (limit), or as plain JSON",
	}
	errNotAnObject = &lie{
		reason: "BackendProtocol", code: http.StatusOK,
		text: "answered with JSON that is neither an object of the API nor a list of them",
	}
)

// relayShaped answers with what s makes of the response. Nothing is written before it is made, so that an answer that
// cannot be converted becomes an honest error.
func (x *exchange) relayShaped(resp *http.Response, s *shape, l *leash) error {
	if x.info.Verb == "watch" {
		x.relayEvents(resp, s, l)
		return nil
	}
	body, err := x.shaped(resp.Body, s, l)
	if err != nil {
		return l.because(err)
	}
	x.headShaped(resp)
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	l.answered(x.proxy.config.BodyIdle)
	x.w.WriteHeader(http.StatusOK)
	if _, err := x.w.Write(body); err != nil {
		x.breakOff(errors.Join(errWrite, err), l)
	}
	return nil
}

// headShaped is the header of a converted response. What described the bytes of the backend's goes.
func (x *exchange) headShaped(resp *http.Response) {
	h := x.w.Header()
	x.copyHeaderTo(h, resp.Header)
	for _, name := range []string{"Content-Length", "Etag", "Last-Modified", "Accept-Ranges", "Digest"} {
		delete(h, name)
	}
	h.Set("Content-Type", "application/json")
	h.Add("Vary", "Accept")
}

func (x *exchange) shaped(from io.Reader, s *shape, ctx context.Context) ([]byte, error) {
	select {
	case x.proxy.conversions <- struct{}{}:
		defer func() { <-x.proxy.conversions }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	body, err := io.ReadAll(io.LimitReader(from, maxConverted+1))
	switch {
	case err != nil:
		return nil, err
	case len(body) > maxConverted:
		return nil, errTooLarge
	}
	return s.convert(body)
}

// relayEvents converts a watch event by event, and flushes each.
func (x *exchange) relayEvents(resp *http.Response, s *shape, l *leash) {
	x.headShaped(resp)
	l.answered(0)
	x.w.WriteHeader(http.StatusOK)
	flush := flusher(x.w)
	flush()
	limited := &io.LimitedReader{R: resp.Body}
	in := json.NewDecoder(limited)
	out := json.NewEncoder(x.w)
	for first := true; ; first = false {
		limited.N = maxConverted
		var e event
		err := in.Decode(&e)
		if err == io.EOF && limited.N > 0 {
			return
		}
		if err == nil {
			e.Object, err = s.event(e, first)
		}
		if err == nil {
			err = out.Encode(e) // and a line feed
		}
		if err != nil {
			x.breakOff(err, l)
			return
		}
		flush()
	}
}

// event is one of a watch.
type event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}
