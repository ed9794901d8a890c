package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"portico.dev/internal/transport"
)

// Identity is the user of a request, in the headers of the front proxy.
type Identity struct {
	User   string
	Groups []string
}

// Request is a request for one document of a backend.
type Request struct {
	// Path is an absolute path, Query the query without the question mark.
	Path, Query string
	Accept      string
	// ETag is the tag of the known document, which permits a 304 response. If empty, the whole document is requested.
	ETag string
	As   Identity
	// Limit is the maximum size of the body in bytes. A larger body is an error.
	Limit int64
	// Timeout limits the whole request, to the last byte of the body.
	Timeout time.Duration
}

// Answer is the response of a backend. Body is only set if Code is 200.
type Answer struct {
	Code        int
	ContentType string
	ETag        string
	Body        []byte
}

var (
	// ErrTooLarge marks a body over the limit.
	ErrTooLarge = errors.New("the body is larger than allowed")
	// ErrUnreachable means that no response arrived. The wrapped error may contain pod addresses, which clients must not
	// see.
	ErrUnreachable = errors.New("no answer")
)

// Fetcher sends requests to backends. It limits the number of bodies that are read concurrently. It does not limit the
// number of requests, because a hanging backend would then delay other backends. A backend that sends its bodies slowly
// gets a fourth of the turns.
type Fetcher struct {
	bodies *transport.Turns
}

// NewFetcher returns a Fetcher that reads at most the given number of bodies concurrently.
func NewFetcher(bodies int) *Fetcher {
	return &Fetcher{bodies: transport.NewTurns(bodies, max(bodies/4, 1))}
}

// Fetch returns the backend's response with any status code, or an error if there was no response or its body is unusable.
func (f *Fetcher) Fetch(ctx context.Context, b Backend, q Request) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, q.Timeout)
	defer cancel()
	r := (&http.Request{
		Method: http.MethodGet,
		URL:    &url.URL{Scheme: "https", Host: "backend", Path: q.Path, RawQuery: q.Query},
		Header: headers(q),
	}).WithContext(ctx)
	// Use a round tripper, not a client: redirects are not followed.
	response, err := b.Probe().RoundTrip(r)
	if err != nil {
		return nil, fmt.Errorf("get %s from %s: %w: %w", q.Path, b.Name(), ErrUnreachable, err)
	}
	defer func() { _ = response.Body.Close() }() // nothing was written
	answer := &Answer{
		Code:        response.StatusCode,
		ContentType: response.Header.Get("Content-Type"),
		ETag:        response.Header.Get("ETag"),
	}
	if response.StatusCode != http.StatusOK {
		_, _ = io.CopyN(io.Discard, response.Body, 4<<10) // so that the connection can be reused
		return answer, nil
	}
	if answer.Body, err = f.read(ctx, b.Name(), response, q.Limit); err != nil {
		return nil, fmt.Errorf("read %s from %s: %w", q.Path, b.Name(), err)
	}
	return answer, nil
}

func (f *Fetcher) read(ctx context.Context, backend string, response *http.Response, limit int64) ([]byte, error) {
	if encoding := response.Header.Get("Content-Encoding"); encoding != "" {
		return nil, fmt.Errorf("content encoding %q was not asked for", encoding)
	}
	release, err := f.bodies.Wait(ctx, backend)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer release()
	body, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	if err == nil {
		err = ctx.Err() // a server that hangs may end its response when its client closes the connection
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if int64(len(body)) > limit {
		return nil, fmt.Errorf("%w: the limit is %d bytes", ErrTooLarge, limit)
	}
	return body, nil
}

func headers(q Request) http.Header {
	h := http.Header{}
	h.Set("Accept", q.Accept)
	h.Set("User-Agent", "portico")
	h.Set("X-Remote-User", q.As.User)
	for _, group := range q.As.Groups {
		h.Add("X-Remote-Group", group)
	}
	if q.ETag != "" {
		h.Set("If-None-Match", q.ETag)
	}
	return h
}
