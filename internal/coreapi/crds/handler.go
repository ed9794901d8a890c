package crds

import (
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/respond"
)

// ServeHTTP serves instances, and the document of each group-version.
func (d *Definitions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, ok := apirequest.RequestInfoFrom(r.Context())
	if ok && instanceInProtobuf(info, r) {
		respond.Error(w, r, negotiation.NewUnsupportedMediaTypeError([]string{runtime.ContentTypeJSON, runtime.ContentTypeYAML}))
		return
	}
	if !ok || info.IsResourceRequest {
		d.instances.ServeHTTP(w, r)
		return
	}
	parts := strings.Split(strings.Trim(info.Path, "/"), "/")
	if len(parts) != 3 || parts[0] != "apis" {
		notFound(w, r)
		return
	}
	gv := schema.GroupVersion{Group: parts[1], Version: parts[2]}
	resources, ok := d.Served().resources[gv]
	switch {
	case !ok:
		notFound(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		respond.Error(w, r, apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, r.Method, schema.GroupResource{}, "", "", 0, false))
	default:
		respond.Object(w, r, http.StatusOK, &metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: gv.String(), APIResources: resources,
		})
	}
}

// instanceInProtobuf tells a body that no custom resource can have. Upstream's handler offers protobuf, because it writes
// tables and metadata in it and reads the options of deletions, and then meets a decoder that is nil.
func instanceInProtobuf(info *apirequest.RequestInfo, r *http.Request) bool {
	if !info.IsResourceRequest || info.Verb != "create" && info.Verb != "update" || info.Subresource == "scale" {
		return false
	}
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && mediaType == runtime.ContentTypeProtobuf
}

// notFound answers for what no definition serves.
func notFound(w http.ResponseWriter, r *http.Request) {
	respond.Error(w, r, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "", "", 0, false))
}
