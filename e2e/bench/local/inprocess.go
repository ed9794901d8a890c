package local

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/e2e/environment"
	"portico.dev/internal/request"
)

// inProcess calls a handler directly, with the requests that an HTTP/2 server would create.
type inProcess struct {
	handler http.Handler
	// nothing is the same handler with a final handler that does nothing.
	nothing http.Handler
	// prepare adds the values to the context that the chain would add. Nil if the handler includes the chain.
	prepare func(*http.Request) (*http.Request, error)
}

// prepared returns a prepare function for the REST handler of the local groups.
func prepared(resolver *request.Resolver, u user.Info) func(*http.Request) (*http.Request, error) {
	return func(r *http.Request) (*http.Request, error) {
		info, err := resolver.Info(r)
		if err != nil {
			return nil, err
		}
		ctx := apirequest.WithUser(apirequest.WithRequestInfo(r.Context(), info), u)
		return r.WithContext(request.WithAuditID(ctx, "bench")), nil
	}
}

func (c *inProcess) request(ctx context.Context, method, path, accept, contentType, body string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, "https://front"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body == "" {
		r.Body, r.ContentLength = http.NoBody, 0
	}
	r.RequestURI, r.RemoteAddr = path, "127.0.0.1:40000"
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
	r.Header["Accept"], r.Header["User-Agent"] = []string{accept}, []string{"portico-bench"}
	r.Header["Authorization"] = []string{"Bearer " + environment.UserToken}
	if body != "" {
		r.Header["Content-Type"] = []string{contentType}
	}
	if c.prepare == nil {
		return r, nil
	}
	return c.prepare(r)
}

func (c *inProcess) once(ctx context.Context, method, path, accept, contentType, body string) error {
	r, err := c.request(ctx, method, path, accept, contentType, body)
	if err != nil {
		return err
	}
	w := &sink{header: http.Header{}, code: http.StatusOK}
	c.handler.ServeHTTP(w, r)
	if w.code/100 != 2 {
		return fmt.Errorf("%s %s: %d: %s", method, path, w.code, w.said)
	}
	return nil
}

const jsonType = "application/json"

func collection(ns string) string { return "/api/v1/namespaces/" + ns + "/configmaps" }

func (c *inProcess) create(ctx context.Context, ns, name string) error {
	return c.once(ctx, http.MethodPost, collection(ns), jsonType, jsonType, body(ns, name))
}

func (c *inProcess) get(ctx context.Context, ns, name, version string) error {
	path := collection(ns) + "/" + name
	if version != "" {
		path += "?resourceVersion=" + version
	}
	return c.once(ctx, http.MethodGet, path, jsonType, "", "")
}

func (c *inProcess) list(ctx context.Context, ns, accept string) error {
	return c.once(ctx, http.MethodGet, collection(ns), accept, "", "")
}

func (c *inProcess) touch(ctx context.Context, ns, name, with string) error {
	return c.once(ctx, http.MethodPatch, collection(ns)+"/"+name, jsonType, "application/merge-patch+json", annotation(with))
}

// empty sends a GET that reaches only a handler that does nothing.
func (c *inProcess) empty(ctx context.Context) error {
	r, err := c.request(ctx, http.MethodGet, collection(fewIn)+"/"+first, jsonType, "", "")
	if err != nil {
		return err
	}
	c.nothing.ServeHTTP(&sink{header: http.Header{}}, r)
	return nil
}

func (c *inProcess) watch(ctx context.Context, ns string, opened func(), heard func()) error {
	r, err := c.request(ctx, http.MethodGet, collection(ns)+watchFirst, jsonType, "", "")
	if err != nil {
		return err
	}
	w := &sink{header: http.Header{}, code: http.StatusOK, opened: opened, heard: heard}
	c.handler.ServeHTTP(w, r)
	if ctx.Err() == nil {
		return fmt.Errorf("the watch ended: %d %s", w.code, w.said)
	}
	return nil
}

// sink is a ResponseWriter that discards the body, except for the beginning of an error.
type sink struct {
	header http.Header
	code   int
	said   []byte
	// opened is called at the first flush, heard for every event of a change.
	opened, heard func()
}

func (s *sink) Header() http.Header { return s.header }
func (s *sink) WriteHeader(code int) {
	s.code = code
}

func (s *sink) Write(p []byte) (int, error) {
	if s.code/100 != 2 {
		s.said = append(s.said, p[:min(len(p), 200)]...)
	}
	if s.heard != nil && bytes.Contains(p[:min(len(p), 40)], []byte(`"MODIFIED"`)) {
		s.heard()
	}
	return len(p), nil
}

func (s *sink) WriteString(p string) (int, error) {
	if s.code/100 == 2 && s.heard == nil {
		return len(p), nil
	}
	return s.Write([]byte(p))
}

func (s *sink) Flush() {
	if s.opened != nil {
		s.opened()
		s.opened = nil
	}
}

func (s *sink) CloseNotify() <-chan bool { return nil }

var _ io.StringWriter = (*sink)(nil)
