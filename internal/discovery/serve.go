package discovery

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/respond"
)

// maxWait is the maximum time that a request may wait for a change. It is shorter than the deadline of any request.
const maxWait = 50 * time.Second

// ServeHTTP serves /api, /apis and /apis/<group> from the current snapshot, and /apis/<group>/<version> of a group-version
// with several backends.
func (m *Merger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		respond.Error(w, r, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "discovery"}, r.Method))
		return
	}
	s := m.Current()
	if s == nil {
		respond.Error(w, r, notYet())
		return
	}
	switch path := r.URL.Path; path {
	case "/api", "/apis":
		s = m.wait(r, s)
		s.serveBoth(w, r)
	case "/api/":
		serve(w, r, s.core.legacy, nil)
	case "/apis/":
		serve(w, r, s.groups.legacy, nil)
	default:
		if gv, ok := groupVersionIn(path); ok {
			s.serveVersion(w, r, gv)
			return
		}
		s.serveGroup(w, r, strings.TrimSuffix(strings.TrimPrefix(path, "/apis/"), "/"))
	}
}

func (s *Snapshot) serveBoth(w http.ResponseWriter, r *http.Request) {
	d := s.pair(r.URL.Path)
	if mediaType, ok := negotiateAggregated(accept(r)); ok {
		// The chain has set no-cache, private, as for every request. Upstream sets public for this document: all
		// authenticated users may read it, and caches revalidate it by its ETag.
		w.Header().Set("Cache-Control", "public")
		d.aggregated.serve(w, r, mediaType, nil)
		return
	}
	serve(w, r, d.legacy, nil)
}

func (s *Snapshot) pair(path string) pair {
	if path == "/api" {
		return s.core
	}
	return s.groups
}

func groupVersionIn(path string) (schema.GroupVersion, bool) {
	group, version, ok := strings.Cut(strings.Trim(strings.TrimPrefix(path, "/apis/"), "/"), "/")
	return schema.GroupVersion{Group: group, Version: version}, ok
}

func (s *Snapshot) serveVersion(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion) {
	made, ok := s.version[gv]
	if !ok {
		respond.Error(w, r, unknownPath(r.URL.Path))
		return
	}
	d, err := made()
	if err != nil {
		respond.Error(w, r, err)
		return
	}
	serve(w, r, d, s.warnings[pathOf(gv)])
}

func (s *Snapshot) serveGroup(w http.ResponseWriter, r *http.Request, group string) {
	made, ok := s.group[group]
	switch {
	case !ok && !s.synced:
		// Controllers would act on a 404.
		respond.Error(w, r, notYet())
		return
	case !ok:
		respond.Error(w, r, unknownPath(r.URL.Path))
		return
	}
	d, err := made()
	if err != nil {
		respond.Error(w, r, err)
		return
	}
	serve(w, r, d, s.legacyWarnings["/apis/"+group])
}

// wait implements ?wait=<seconds>, a Portico extension: a client with the current document in If-None-Match gets its
// response when the document changes instead of immediately.
func (m *Merger) wait(r *http.Request, s *Snapshot) *Snapshot {
	seconds, err := strconv.Atoi(r.URL.Query().Get("wait"))
	if err != nil || seconds <= 0 || r.Header.Get("If-None-Match") == "" {
		return s
	}
	deadline := time.NewTimer(min(time.Duration(seconds)*time.Second, maxWait))
	defer deadline.Stop()
	for s.holds(r) {
		select {
		case <-s.replaced:
			s = m.Current()
		case <-deadline.C:
			return s
		case <-r.Context().Done():
			return s
		}
	}
	return s
}

// holds reports whether the client has this snapshot's document.
func (s *Snapshot) holds(r *http.Request) bool {
	d := s.pair(r.URL.Path)
	wanted := d.legacy
	if _, ok := negotiateAggregated(accept(r)); ok {
		wanted = d.aggregated
	}
	return respond.ETagMatches(r, wanted.etag)
}

// serve serves a document that has only one form.
func serve(w http.ResponseWriter, r *http.Request, d *document, warning *remote.Warning) {
	e, ok := respond.Negotiate(accept(r))
	if !ok {
		respond.Error(w, r, respond.NotAcceptable(respond.MediaJSON, respond.MediaYAML, respond.MediaProtobuf))
		return
	}
	d.serve(w, r, e.MediaType, warning)
}

func (d *document) serve(w http.ResponseWriter, r *http.Request, mediaType string, warning *remote.Warning) {
	encoded, err := d.encodings[mediaType].request()
	if err != nil {
		respond.Error(w, r, err)
		return
	}
	warning.Serve(w, r, encoded)
}

func accept(r *http.Request) string { return strings.Join(r.Header.Values("Accept"), ",") }

func notYet() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusServiceUnavailable,
		Reason:  metav1.StatusReasonServiceUnavailable,
		Message: "the server has not seen every registered API yet, please try again",
		Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
	}}
}

func unknownPath(path string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotFound,
		Reason:  metav1.StatusReasonNotFound,
		Message: "nothing is served at " + path + "; /apis lists the groups that are",
	}}
}

// negotiateAggregated finds a clause of an Accept header that requests aggregated discovery v2. Like upstream, it prefers
// such a clause to any other, whatever the weights: clients send the plain one as a fallback for old servers. Among several
// the weight decides, then the order. v2beta1 is not supported, like upstream since 1.35.
func negotiateAggregated(accept string) (mediaType string, ok bool) {
	best := 0.0
	for c := range respond.Clauses(accept) {
		if candidate, known := concrete(c.MediaType); known && asksAggregated(c.Params) && c.Quality > best {
			mediaType, best = candidate, c.Quality
		}
	}
	return mediaType, best > 0
}

func concrete(mediaType string) (string, bool) {
	switch mediaType {
	case "*/*", "application/*":
		return respond.MediaJSON, true
	case respond.MediaJSON, respond.MediaYAML, respond.MediaProtobuf:
		return mediaType, true
	}
	return "", false
}
