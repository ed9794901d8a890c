package transport

import (
	"context"
	"net/http"
)

// Observer hears of the attempts of one request, one after another, on the goroutine that sends the request.
type Observer interface {
	// Attempt is told which endpoint is about to be tried, and how many attempts there are with this one. The header
	// is what will be sent; where another one is to be sent with this attempt, a changed copy is returned, else nil.
	Attempt(endpoint string, number int, header http.Header) http.Header
	// Outcome is told what came of the attempt: the code of the response, or 0 and the error.
	Outcome(code int, err error)
}

type observerKey struct{}

// WithObserver lets o hear of the attempts of the requests that are sent with ctx.
func WithObserver(ctx context.Context, o Observer) context.Context {
	return context.WithValue(ctx, observerKey{}, o)
}

// nobody observes requests that nobody observes.
type nobody struct{}

func (nobody) Attempt(string, int, http.Header) http.Header { return nil }
func (nobody) Outcome(int, error)                           {}

// AsksForObserver reports whether a context that is asked for key is asked for its Observer. Contexts that observe by
// themselves answer with one.
func AsksForObserver(key any) bool { return key == observerKey{} }

func observerOf(ctx context.Context) Observer {
	if o, ok := ctx.Value(observerKey{}).(Observer); ok {
		return o
	}
	return nobody{}
}

// announce tells the observer of an attempt, and is the request that is to be sent.
func (j *journey) announce(e *endpoint, r *http.Request) *http.Request {
	header := j.observer.Attempt(e.address, j.attempts, r.Header)
	if header == nil {
		return r
	}
	changed := *r
	changed.Header = header
	return &changed
}
