// Package respond writes errors as a metav1.Status, small API objects, and immutable documents, in the encoding that
// the client accepts. Accept is negotiated only here.
//
// Clients parse Status; a text body would only show that something failed. All responses that the front door or the
// extension host generates are written here.
package respond

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// codecs returns the encoders of the unversioned types. The result is immutable.
var codecs = sync.OnceValue(func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	scheme.AddUnversionedTypes(schema.GroupVersion{Version: "v1"},
		&metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	return serializer.NewCodecFactory(scheme)
})

// Error responds to r with err as a Status. An error that carries a Status (k8s.io/apimachinery/pkg/api/errors) keeps
// its code, reason and details. Other errors become 500 InternalError. details.retryAfterSeconds is sent as
// Retry-After.
//
// Error never responds with 406: a client that accepts no supported encoding receives JSON, as from kube-apiserver.
func Error(w http.ResponseWriter, r *http.Request, err error) {
	status := StatusOf(err)
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	// Caches that may store the document must not store a Status in its place.
	w.Header().Set("Cache-Control", "no-cache, private")
	w.Header().Del("ETag")
	info, ok := Negotiate(r.Header.Get("Accept"))
	if !ok {
		info = jsonEncoding
	}
	write(w, r, int(status.Code), info, status)
}

// StatusOf returns the Status that Error would send.
func StatusOf(err error) *metav1.Status {
	var carrier apierrors.APIStatus
	if !errors.As(err, &carrier) {
		carrier = apierrors.NewInternalError(err)
	}
	status := carrier.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	status.Status = cmp.Or(status.Status, metav1.StatusFailure)
	if status.Code < 100 || status.Code > 599 {
		status.Code = http.StatusInternalServerError
	}
	return &status
}

// Object responds to r with an object of an unversioned type (APIGroupList, APIResourceList, APIVersions, APIGroup,
// Status) in the encoding that the client accepts, or with 406.
func Object(w http.ResponseWriter, r *http.Request, code int, obj runtime.Object) {
	info, ok := Negotiate(r.Header.Get("Accept"))
	if !ok {
		Error(w, r, NotAcceptable(MediaJSON, MediaYAML, MediaProtobuf))
		return
	}
	// Encoding sets the kind in the object, and objects are shared between requests.
	write(w, r, code, info, obj.DeepCopyObject())
}

// JSON responds with v as JSON, for documents that are not negotiated.
func JSON(w http.ResponseWriter, code int, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		code, body = http.StatusInternalServerError, []byte(`{"error":"the document could not be written"}`)
	}
	body = append(body, '\n')
	h := w.Header()
	h.Set("Content-Type", MediaJSON)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body) // fails only if the client disconnected
}

func write(w http.ResponseWriter, r *http.Request, code int, e Encoding, obj runtime.Object) {
	var body bytes.Buffer
	encoder := codecs().EncoderForVersion(e.serializer(), schema.GroupVersion{Version: "v1"})
	if err := encoder.Encode(obj, &body); err != nil {
		// Possible only for an unregistered type, a bug of this server.
		JSON(w, http.StatusInternalServerError, StatusOf(err))
		return
	}
	w.Header().Set("Content-Type", e.MediaType)
	Body(w, r, code, body.Bytes())
}

// Body sends the status code and a body with its length. A response to HEAD gets no body.
func Body(w http.ResponseWriter, r *http.Request, code int, body []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // fails only if the client disconnected
	}
}

// NotFound returns a 404 that names no object and only reports that nothing is served at the path.
func NotFound(r *http.Request) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "", "", 0, false)
}

// NotAcceptable returns the 406 of kube-apiserver's negotiation, with the available media types.
func NotAcceptable(mediaTypes ...string) error {
	var list bytes.Buffer
	for i, m := range mediaTypes {
		if i > 0 {
			list.WriteString(", ")
		}
		list.WriteString(m)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotAcceptable,
		Reason:  metav1.StatusReasonNotAcceptable,
		Message: "only the following media types are accepted: " + list.String(),
	}}
}
