package extension

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/respond"
)

// checkTimeout limits one round of checks. A failed probe is more informative than one that hangs.
const checkTimeout = 5 * time.Second

// Check is a named health check.
type Check struct {
	// Name appears in verbose responses and is a path below the endpoint.
	Name string
	// Check returns nil if the check passes, and the reason otherwise. It must return when ctx ends.
	Check func(ctx context.Context) error
}

// health serves /livez, /readyz and /healthz without authentication, because a kubelet has no credentials. As in
// kube-apiserver, details appear only in verbose and failed responses.
type health struct {
	endpoints map[string][]Check
	sources   func() []Source
}

func newHealth(live, ready []Check, sources func() []Source) *health {
	ping := Check{Name: "ping", Check: func(context.Context) error { return nil }}
	live = append([]Check{ping}, live...)
	return &health{sources: sources, endpoints: map[string][]Check{
		"livez":   live,
		"readyz":  append(slices.Clone(live), ready...),
		"healthz": live,
	}}
}

// owns reports whether path is a health endpoint, which is served before authentication.
func (h *health) owns(path string) bool {
	endpoint, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return h.endpoints[endpoint] != nil
}

func (h *health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		respond.Error(w, r, methodNotAllowed(r))
		return
	}
	endpoint, name, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	checks := h.endpoints[endpoint]
	if name != "" {
		i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == name })
		if i < 0 {
			respond.Error(w, r, notFound(r))
			return
		}
		checks = checks[i : i+1]
	}
	excluded := r.URL.Query()["exclude"]
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	var text strings.Builder
	failed := 0
	for _, c := range checks {
		if slices.Contains(excluded, c.Name) {
			fmt.Fprintf(&text, "[+]%s excluded: ok\n", c.Name)
		} else if err := c.Check(ctx); err != nil {
			failed++
			fmt.Fprintf(&text, "[-]%s failed: %v\n", c.Name, err)
		} else {
			fmt.Fprintf(&text, "[+]%s ok\n", c.Name)
		}
	}
	if endpoint == "readyz" && name == "" {
		for _, s := range h.sources() {
			text.WriteString(s.line())
		}
	}
	writeHealth(w, r, endpoint, text.String(), failed)
}

func writeHealth(w http.ResponseWriter, r *http.Request, endpoint, text string, failed int) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-cache, private")
	code, verdict := http.StatusOK, endpoint+" check passed\n"
	if failed > 0 {
		code, verdict = http.StatusInternalServerError, endpoint+" check failed\n"
	}
	_, verbose := r.URL.Query()["verbose"]
	w.WriteHeader(code)
	switch {
	case r.Method == http.MethodHead:
	case verbose || failed > 0:
		_, _ = fmt.Fprint(w, text, verdict) // the client has disconnected
	default:
		_, _ = fmt.Fprint(w, "ok")
	}
}

func notFound(r *http.Request) error {
	err := apierrors.NewGenericServerResponse(http.StatusNotFound, strings.ToLower(r.Method),
		apiGroupResource(r), "", "", 0, false)
	err.ErrStatus.Message = fmt.Sprintf("the server could not find the requested resource: %s", r.URL.Path)
	return err
}

// methodNotAllowed returns a 405. For a watch it names the verb, as kube-apiserver does, because the method is the one of a
// list, which may be allowed.
func methodNotAllowed(r *http.Request) error {
	action := strings.ToLower(r.Method)
	if info, ok := apirequest.RequestInfoFrom(r.Context()); ok && info.Verb == "watch" {
		action = info.Verb
	}
	return apierrors.NewMethodNotSupported(apiGroupResource(r), action)
}

var errDraining = errors.New("the server is shutting down")

// Source is a data source of resources that may fail independently. A failure appears in /readyz?verbose, where it does not
// fail the endpoint, and as extserver_source_up 0.
type Source struct {
	// Name identifies the source. It is a metric label, so its values must be few.
	Name string
	// LastError returns the current error of the source, nil if it works. It must not block.
	LastError func() error
}

// line returns the source's line in a verbose response. An error is marked differently from a failed check.
func (s Source) line() string {
	if err := s.LastError(); err != nil {
		return fmt.Sprintf("[!]source %s: %s\n", s.Name, headerText(err.Error()))
	}
	return fmt.Sprintf("[+]source %s ok\n", s.Name)
}

func sourcesUp(sources []Source) map[string]bool {
	up := make(map[string]bool, len(sources))
	for _, s := range sources {
		up[s.Name] = s.LastError() == nil
	}
	return up
}
