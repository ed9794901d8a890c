package conformance

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico.dev/internal/respond"
)

// maxBody bounds the size of a response that is read. Merged OpenAPI documents are the largest.
const maxBody = 64 << 20

// caller sends requests to one server as one identity.
type caller struct {
	client  *http.Client
	base    *url.URL
	headers http.Header // added to every request
	timeout time.Duration
}

// question is one request. The default method is GET, the default accept is JSON.
type question struct {
	method, path string
	query        url.Values
	accept       string
	headers      http.Header
	body         []byte
}

// answer is a response. err is set if it is missing or incomplete.
type answer struct {
	question
	code    int
	headers http.Header
	body    []byte
	err     error
}

// get requests JSON from a path. pairs contains alternating names and values of the query.
func (c *caller) get(ctx context.Context, path string, pairs ...string) answer {
	return c.do(ctx, question{path: path, query: query(pairs...)})
}

// as requests another representation.
func (c *caller) as(ctx context.Context, path, accept string, pairs ...string) answer {
	return c.do(ctx, question{path: path, accept: accept, query: query(pairs...)})
}

func query(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return q
}

func (c *caller) do(ctx context.Context, q question) answer {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	a := answer{question: q}
	response, err := c.open(ctx, q)
	if err != nil {
		a.err = err
		return a
	}
	defer func() { _ = response.Body.Close() }()
	a.code, a.headers = response.StatusCode, response.Header
	a.body, a.err = io.ReadAll(io.LimitReader(response.Body, maxBody))
	return a
}

// open sends a request and leaves the body to the caller. The body ends with ctx.
func (c *caller) open(ctx context.Context, q question) (*http.Response, error) {
	target := c.base.JoinPath(q.path)
	target.RawQuery = q.query.Encode()
	method := cmp.Or(q.method, http.MethodGet)
	r, err := http.NewRequestWithContext(ctx, method, target.String(), strings.NewReader(string(q.body)))
	if err != nil {
		return nil, err
	}
	for _, from := range []http.Header{c.headers, q.headers} {
		maps.Copy(r.Header, from)
	}
	r.Header.Set("User-Agent", "aggregator-conformance")
	r.Header.Set("Accept", q.accept)
	if q.accept == "" {
		r.Header.Set("Accept", respond.MediaJSON)
	}
	if q.body != nil {
		r.Header.Set("Content-Type", respond.MediaJSON)
	}
	return c.client.Do(r)
}

func (a answer) is(code int) bool { return a.err == nil && a.code == code }

// media returns the Content-Type without its parameters.
func (a answer) media() string {
	media, _, _ := strings.Cut(a.headers.Get("Content-Type"), ";")
	return strings.TrimSpace(media)
}

// into decodes a 200 response. Otherwise the error describes the response.
func (a answer) into(v any) error {
	if !a.is(http.StatusOK) {
		return fmt.Errorf("%s", a)
	}
	if err := json.Unmarshal(a.body, v); err != nil {
		return fmt.Errorf("%s is not JSON as expected: %w", a.where(), err)
	}
	return nil
}

// status returns the Status in the body, or nil. A request for protobuf may be refused in protobuf.
func (a answer) status() *metav1.Status {
	var s metav1.Status
	if packed, is := bytes.CutPrefix(a.body, protobufMagic); is {
		var envelope runtime.Unknown
		if envelope.Unmarshal(packed) != nil || s.Unmarshal(envelope.Raw) != nil {
			return nil
		}
		s.SetGroupVersionKind(envelope.GroupVersionKind())
	} else if json.Unmarshal(a.body, &s) != nil {
		return nil
	}
	if s.Kind != "Status" {
		return nil
	}
	return &s
}

func (a answer) where() string {
	out := a.path
	if len(a.query) > 0 {
		readable, err := url.QueryUnescape(a.query.Encode())
		if err != nil {
			readable = a.query.Encode()
		}
		out += "?" + readable
	}
	if a.method != "" {
		out = a.method + " " + out
	}
	return out
}

// String returns a short description of the response.
func (a answer) String() string {
	if a.err != nil {
		return fmt.Sprintf("%s: %v", a.where(), a.err)
	}
	said := strings.Trim(strconv.QuoteToGraphic(strings.TrimSpace(string(a.body[:min(len(a.body), 120)]))), `"`)
	if s := a.status(); s != nil {
		said = s.Message
	}
	return strings.TrimSpace(fmt.Sprintf("%s is answered %d %s", a.where(), a.code, said))
}

// refusal checks that a response has one of the codes and contains a matching Status.
func (a answer) refusal(codes ...int) verdict {
	if a.err != nil {
		return failed("%s", a)
	}
	right := false
	for _, code := range codes {
		right = right || a.code == code
	}
	if !right {
		return failed("%s", a)
	}
	if err := a.statusShape(); err != nil {
		return failed("%s is answered %d, %v", a.where(), a.code, err)
	}
	return ok
}

// statusShape returns an error if clients cannot read the Status.
func (a answer) statusShape() error {
	s := a.status()
	switch {
	case s == nil:
		return fmt.Errorf("without a Status: %q", a.body[:min(len(a.body), 60)])
	case s.APIVersion != "v1" || s.Status != metav1.StatusFailure || s.Message == "":
		return errors.New("with a Status that lacks apiVersion v1, status Failure or a message")
	case int(s.Code) != a.code:
		return fmt.Errorf("with a Status that says %d", s.Code)
	}
	return nil
}
