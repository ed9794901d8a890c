package openapi

import (
	"fmt"
	"net/http"
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
		served, err := i.served()
		if err != nil {
			respond.Error(w, r, err)
			return
		}
		served.Serve(w, r)
	case ok && strings.HasPrefix(path, "/"):
		p.serve(w, r, d)
	default:
		respond.Error(w, r, notFound(r.URL.Path))
	}
}

// Lookup returns the document of a group-version.
func (p *Publisher) Lookup(gv schema.GroupVersion) (Document, bool) {
	i := p.current.Load()
	if i == nil {
		return Document{}, false
	}
	d, ok := i.documents[indexPath(gv)]
	return d, ok
}

// serve serves one document.
func (p *Publisher) serve(w http.ResponseWriter, r *http.Request, d Document) {
	mediaType, ok := negotiate(r.Header.Values("Accept"), mediaProtobuf)
	if !ok {
		respond.Error(w, r, respond.NotAcceptable(respond.MediaJSON, mediaProtobuf))
		return
	}
	served, warning := d.as(mediaType), p.cfg.Warning("/"+d.Path)
	if asked := r.URL.Query().Get("hash"); asked != "" && asked != d.Hash {
		w.Header().Set("Location", d.URL())
		w.WriteHeader(http.StatusMovedPermanently)
		return
	} else if asked != "" {
		// The document of a hash never changes, so that clients may cache it. It has no warning, because clients would
		// cache that too.
		warning = nil
		served.CacheControl = "public, immutable"
		w.Header().Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
	}
	if mediaType == mediaProtobuf {
		served.MakeGzip = func() ([]byte, error) {
			packed, err := p.asProtobuf(d)
			if err != nil {
				w.Header().Del("Expires")
				return nil, fmt.Errorf("write the document of %s as protobuf: %w", d.Path, err)
			}
			return packed, nil
		}
	}
	warning.Serve(w, r, &served)
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
	served := e.as(mediaType)
	if mediaType == mediaProtobufV2 {
		served.MakeGzip = func() ([]byte, error) { return s.asProtobuf(r.Context(), e) }
	}
	served.Serve(w, r)
}

// negotiate returns JSON or protobuf, according to the clause with the highest weight, or the first of several. Clients
// used names with "@" (spec.v3@v1.0+protobuf) before it was found to be invalid in a media type; client-go still does for
// version 2. The new names have a dot instead.
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
