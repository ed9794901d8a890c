package transport

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"portico.dev/internal/httpengine"
)

// withLibrary makes a Set use net/http for backends, regardless of the environment.
func withLibrary(o *Options) { o.Engine = httpengine.Library }

// takenByTheLibrary lists responses that net/http's HTTP/1.1 accepts although they are ambiguous or malformed. The table "Towards backends" of
// internal/httpengine/README.md has one row for each. Portico's engine rejects all of them.
var takenByTheLibrary = []string{
	"NUL in an extension", "bare LF after a header", "bare LF after a length", "bare LF after the code",
	"bare LF after the status", "bare LF at the end", "blank after a chunk size", "coding and length", "coding in HTTP/1.0",
	"early hints of a length", "folded header", "folded with a tab", "length and coding", "lie after an interim answer", "lie in an interim answer",
	"no content in chunks", "no content of a length", "trailer that encodes", "trailer that frames", "trailer that is folded", "trailer with a blank", "two blanks",
	"two lengths that agree",
}

// A response of an HTTP/1.1 backend that net/http rejects is a protocol error of the backend: the request is not repeated,
// and the connection does not count as failed.
func TestNetHTTPRejectionIsBackendProtocolError(t *testing.T) {
	w := newTestEnv(t)
	answers := map[string]string{}
	for name, lie := range headLies {
		answers[pathOf(name)] = lie.text + closing
	}
	for name, lie := range bodyLies {
		answers[pathOf(name)] = lie.text + closing
	}
	for name, text := range endlessHeads {
		answers[pathOf(name)] = text
	}
	s := w.scripted(answers)
	var taken []string
	for _, path := range slices.Sorted(maps.Keys(answers)) {
		name := strings.ReplaceAll(path[1:], "-", " ")
		// A new Set has a connection that no other response has ended.
		b := w.backend(w.set(withLibrary, func(o *Options) { o.MaxHeaderBytes = 64 << 10 }), s.address)
		resp, body, err := ask(t, b, http.MethodPost, path)
		var failed *Error
		switch {
		case err == nil:
			taken = append(taken, name)
			t.Logf("%s: taken: %d %q %v", name, resp.StatusCode, body, resp.Header)
		case errors.As(err, &failed) && failed.Protocol, classify(t.Context(), err).protocol:
		default:
			t.Errorf("POST of %s error = %v, want a protocol error", name, err)
		}
		if n := s.count(path).Load(); n != 1 {
			t.Errorf("POST of %s reached the backend %d times, want 1", name, n)
		}
	}
	if !slices.Equal(taken, takenByTheLibrary) {
		t.Errorf("malformed responses that net/http accepts = %q, want %q", taken, takenByTheLibrary)
	}
}
