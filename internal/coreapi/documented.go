package coreapi

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/handler3"

	"portico.dev/internal/respond"
)

const documentRoot = "/openapi/v3"

// documented serves the OpenAPI documents of what is served here before next, for mutating policies: they read the
// document of each group-version whose objects they change, and ask every five seconds whether it has changed. Nothing is
// built or kept for them; the front door's own documents, merged with those of backends, are internal/openapi's.
func (s *Server) documented(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, ok := strings.CutPrefix(r.URL.Path, documentRoot)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		all := s.packedDocuments()
		if path == "" {
			respond.JSON(w, http.StatusOK, indexOf(all))
			return
		}
		packed, ok := all[strings.TrimPrefix(path, "/")]
		if !ok {
			respond.Error(w, r, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "", "", 0, true))
			return
		}
		unpack(w, packed.body)
	})
}

type packedDocument struct {
	hash string
	body []byte
}

func (s *Server) packedDocuments() map[string]packedDocument {
	all := map[string]packedDocument{}
	for _, d := range s.PreparedDocuments() {
		all[d.Path] = packedDocument{d.Hash, d.Packed}
	}
	for _, d := range s.Documents() {
		all[d.Path] = packedDocument{d.Hash, d.Packed}
	}
	return all
}

func indexOf(all map[string]packedDocument) *handler3.OpenAPIV3Discovery {
	index := &handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}}
	for path, d := range all {
		index.Paths[path] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: documentRoot + "/" + path + "?hash=" + d.hash}
	}
	return index
}

func unpack(w http.ResponseWriter, packed []byte) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		panic(err) // it was packed by this program
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.Copy(w, r) // the reader has gone, or reads on
}
