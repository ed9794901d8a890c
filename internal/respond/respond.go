// Package respond writes errors as a metav1.Status and small API objects, in the encoding that the client accepts, and
// documents that do not change; it is the one place where Accept is negotiated.
//
// Clients parse Status: a text body tells them only that something is wrong. Every response that the front door or the
// extension host makes by itself is written here.
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

// codecs holds the encoders of the unversioned types. It is immutable once made.
var codecs = sync.OnceValue(func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	scheme.AddUnversionedTypes(schema.GroupVersion{Version: "v1"},
		&metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	return serializer.NewCodecFactory(scheme)
})

// Error answers r with err as a Status. An error that carries a Status (k8s.io/apimachinery/pkg/api/errors) keeps its
// code, reason and details; any other becomes 500 InternalError. details.retryAfterSeconds becomes Retry-After.
//
// An error never answers 406: a client that accepts nothing we can write gets JSON, as from kube-apiserver.
func Error(w http.ResponseWriter, r *http.Request, err error) {
	status := StatusOf(err)
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	// A Status must not be kept by caches that would have kept the document it stands for.
	w.Header().Set("Cache-Control", "no-cache, private")
	w.Header().Del("ETag")
	info, ok := Negotiate(r.Header.Get("Accept"))
	if !ok {
		info = jsonEncoding
	}
	write(w, r, int(status.Code), info, status)
}

// StatusOf is the Status that Error would answer.
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

// Object answers r with one of the unversioned types (APIGroupList, APIResourceList, APIVersions, APIGroup, Status) in
// the encoding that the client accepts, or with 406 when it accepts none of ours.
func Object(w http.ResponseWriter, r *http.Request, code int, obj runtime.Object) {
	info, ok := Negotiate(r.Header.Get("Accept"))
	if !ok {
		Error(w, r, NotAcceptable(MediaJSON, MediaYAML, MediaProtobuf))
		return
	}
	// Encoding writes the kind into what it encodes, and documents are shared between requests.
	write(w, r, code, info, obj.DeepCopyObject())
}

// JSON answers with v as plain JSON, for documents that are not negotiated.
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
	_, _ = w.Write(body) // the client is gone
}

func write(w http.ResponseWriter, r *http.Request, code int, e Encoding, obj runtime.Object) {
	var body bytes.Buffer
	encoder := codecs().EncoderForVersion(e.serializer(), schema.GroupVersion{Version: "v1"})
	if err := encoder.Encode(obj, &body); err != nil {
		// Only a type that was never registered gets here: a mistake of ours, not of the client.
		JSON(w, http.StatusInternalServerError, StatusOf(err))
		return
	}
	w.Header().Set("Content-Type", e.MediaType)
	Body(w, r, code, body.Bytes())
}

// Body sends the status code and a body with its length. HEAD gets no body.
func Body(w http.ResponseWriter, r *http.Request, code int, body []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client is gone
	}
}

// NotFound names no object: it only says that nothing is served at the path.
func NotFound(r *http.Request) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "", "", 0, false)
}

// NotAcceptable is the 406 of kube-apiserver's negotiation, with the media types that are available.
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
