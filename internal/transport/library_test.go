package transport

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"portico.dev/internal/engine"
)

// withLibrary has a Set reach backends by the library, whatever the environment says.
func withLibrary(o *Options) { o.Engine = engine.Library }

// What the library's HTTP/1.1 takes for a response although it has more than one reading, or is none. Each is known, and in the
// table "Towards backends" of docs/http-engines.md as one row. With Portico's engine all of them are refused.
var takenByTheLibrary = []string{
	"NUL in an extension", "bare LF after a header", "bare LF after a length", "bare LF after the code",
	"bare LF after the status", "bare LF at the end", "blank after a chunk size", "coding and length", "coding in HTTP/1.0",
	"early hints of a length", "folded header", "folded with a tab", "length and coding", "lie after an interim answer", "lie in an interim answer",
	"no content in chunks", "no content of a length", "trailer that encodes", "trailer that frames", "trailer that is folded", "trailer with a blank", "two blanks",
	"two lengths that agree",
}

// Whatever the library refuses of what a backend of HTTP/1.1 says is the backend breaking the protocol: it is not asked for again,
// and does not count as a connection that failed.
func TestWhatTheLibraryMakesOfLies(t *testing.T) {
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
		// A Set of its own has a connection that no other answer ended.
		b := w.backend(w.set(withLibrary, func(o *Options) { o.MaxHeaderBytes = 64 << 10 }), s.address)
		resp, body, err := ask(t, b, http.MethodPost, path)
		var failed *Error
		switch {
		case err == nil:
			taken = append(taken, name)
			t.Logf("%s: taken: %d %q %v", name, resp.StatusCode, body, resp.Header)
		case errors.As(err, &failed) && failed.Protocol, classify(t.Context(), err).protocol:
		default:
			t.Errorf("%s: %v", name, err)
		}
		if n := s.count(path).Load(); n != 1 {
			t.Errorf("%s: asked for %d times", name, n)
		}
	}
	if !slices.Equal(taken, takenByTheLibrary) {
		t.Errorf("the library takes %q", taken)
	}
}
