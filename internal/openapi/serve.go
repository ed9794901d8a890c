package openapi

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/respond"
)

const (
	mediaProtobuf   = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
	mediaProtobufV2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
)

// ServeHTTP serves /openapi/v3, the documents below it, and /openapi/v2.
func (p *Publisher) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		respond.Error(w, r, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "openapi"}, r.Method))
		return
	}
	i := p.current.Load()
	if i == nil {
		respond.Error(w, r, notYet())
		return
	}
	if r.URL.Path == "/openapi/v2" {
		p.v2.serve(w, r)
		return
	}
	path := strings.TrimPrefix(r.URL.Path, "/openapi/v3")
	switch d, ok := i.documents[strings.TrimPrefix(path, "/")]; {
	case path == "" || path == "/":
		i.serve(w, r)
	case ok && strings.HasPrefix(path, "/"):
		p.serve(w, r, d)
	default:
		respond.Error(w, r, notFound(r.URL.Path))
	}
}

// serve serves the index.
func (i *index) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("ETag", i.etag)
	if i.packed != nil {
		h.Add("Vary", "Accept-Encoding")
	}
	if respond.ETagMatches(r, i.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := i.body
	if i.packed != nil && respond.AcceptsGzip(r) {
		body = i.packed
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Type", respond.MediaJSON)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client is gone
	}
}

// serve serves one document.
func (p *Publisher) serve(w http.ResponseWriter, r *http.Request, d Document) {
	mediaType, ok := negotiate(r.Header.Values("Accept"), mediaProtobuf)
	if !ok {
		respond.Error(w, r, respond.NotAcceptable(respond.MediaJSON, mediaProtobuf))
		return
	}
	if asked := r.URL.Query().Get("hash"); asked != "" && asked != d.Hash {
		w.Header().Set("Location", d.url())
		w.WriteHeader(http.StatusMovedPermanently)
		return
	} else if asked != "" {
		// The document of a hash never changes, so that clients may cache it.
		w.Header().Set("Cache-Control", "public, immutable")
		w.Header().Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
	}
	h := w.Header()
	h.Set("ETag", `"`+d.Hash+`"`)
	h.Add("Vary", "Accept")
	h.Add("Vary", "Accept-Encoding")
	if respond.ETagMatches(r, `"`+d.Hash+`"`) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	packed := d.Packed
	if mediaType == mediaProtobuf {
		var err error
		if packed, err = p.asProtobuf(d); err != nil {
			h.Del("Expires")
			respond.Error(w, r, fmt.Errorf("write the document of %s as protobuf: %w", d.Path, err))
			return
		}
	}
	h.Set("Content-Type", mediaType)
	write(w, r, packed)
}

// serve serves the version 2 document.
func (s *v2Publisher) serve(w http.ResponseWriter, r *http.Request) {
	mediaType, ok := negotiate(r.Header.Values("Accept"), mediaProtobufV2)
	if !ok {
		respond.Error(w, r, respond.NotAcceptable(respond.MediaJSON, mediaProtobufV2))
		return
	}
	e, err := s.current(r.Context())
	if err != nil {
		respond.Error(w, r, err)
		return
	}
	h := w.Header()
	h.Set("ETag", `"`+e.Hash+`"`)
	h.Add("Vary", "Accept")
	h.Add("Vary", "Accept-Encoding")
	if respond.ETagMatches(r, `"`+e.Hash+`"`) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	packed := e.Packed
	if mediaType == mediaProtobufV2 {
		if packed, err = s.asProtobuf(e); err != nil {
			h.Del("ETag")
			respond.Error(w, r, err)
			return
		}
	}
	h.Set("Content-Type", mediaType)
	write(w, r, packed)
}

// write sends compressed bytes to clients that accept gzip, and decompresses them for others.
func write(w http.ResponseWriter, r *http.Request, packed []byte) {
	h := w.Header()
	if respond.AcceptsGzip(r) {
		h.Set("Content-Encoding", "gzip")
		h.Set("Content-Length", strconv.Itoa(len(packed)))
		w.WriteHeader(http.StatusOK)
		if r.Method != http.MethodHead {
			_, _ = w.Write(packed) // the client is gone
		}
		return
	}
	body, err := unpack(packed)
	if err != nil {
		respond.Error(w, r, err)
		return
	}
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = io.Copy(w, body) // the client is gone
	}
}

// negotiate returns JSON or protobuf, whichever the clause with the highest weight requests, the first among equals.
// Clients used names with "@" (spec.v3@v1.0+protobuf) before it was found to be invalid in a media type; for version 2
// client-go still does. With a dot in its place they are the new names.
func negotiate(accept []string, protobuf string) (string, bool) {
	all := strings.ReplaceAll(strings.Join(accept, ","), "@", ".")
	if strings.TrimSpace(all) == "" {
		return respond.MediaJSON, true
	}
	best, weight := "", 0.0
	for c := range respond.Clauses(all) {
		offered := ""
		switch c.MediaType {
		case respond.MediaJSON, "*/*", "application/*":
			offered = respond.MediaJSON
		case protobuf:
			offered = protobuf
		}
		if offered != "" && c.Quality > weight {
			best, weight = offered, c.Quality
		}
	}
	return best, weight > 0
}

func notYet() error {
	err := apierrors.NewServiceUnavailable("the OpenAPI documents are not ready yet, please try again")
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

func notFound(path string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotFound,
		Reason:  metav1.StatusReasonNotFound,
		Message: "there is no OpenAPI document at " + path + "; /openapi/v3 lists those that are",
	}}
}
