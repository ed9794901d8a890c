package respond

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

func answer(accept string, err error) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/apis", nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	Error(w, r, err)
	return w
}

func TestErrorIsStatusInClientEncoding(t *testing.T) {
	busy := apierrors.NewTooManyRequests("later", 7)
	for name, c := range map[string]struct {
		accept, mediaType string
	}{
		"nothing named":             {"", MediaJSON},
		"JSON":                      {"application/json", MediaJSON},
		"YAML":                      {"application/yaml", MediaYAML},
		"protobuf before JSON":      {"application/vnd.kubernetes.protobuf,application/json", MediaProtobuf},
		"better quality":            {"application/vnd.kubernetes.protobuf;q=0.5, application/json", MediaJSON},
		"a Table, which we are not": {"application/json;as=Table;v=v1;g=meta.k8s.io,application/json", MediaJSON},
		"only what we cannot write": {"application/cbor", MediaJSON},
		"anything":                  {"*/*", MediaJSON},
	} {
		t.Run(name, func(t *testing.T) {
			w := answer(c.accept, busy)
			if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "7" {
				t.Errorf("status of the error = %d with Retry-After %q, want 429 and 7", w.Code, w.Header().Get("Retry-After"))
			}
			if got := w.Header().Get("Content-Type"); got != c.mediaType {
				t.Fatalf("Content-Type for Accept %q = %q, want %q", c.accept, got, c.mediaType)
			}
			status := decode(t, c.mediaType, w.Body.Bytes())
			if status.Reason != metav1.StatusReasonTooManyRequests || status.Message == "" {
				t.Errorf("decoded status = %+v, want the reason TooManyRequests and a message", status)
			}
		})
	}
}

func decode(t *testing.T, mediaType string, body []byte) *metav1.Status {
	t.Helper()
	status := &metav1.Status{}
	var err error
	switch mediaType {
	case MediaJSON:
		err = json.Unmarshal(body, status)
	case MediaYAML:
		err = yaml.Unmarshal(body, status)
	case MediaProtobuf:
		var obj runtime.Object
		info, _ := runtime.SerializerInfoForMediaType(codecs().SupportedMediaTypes(), MediaProtobuf)
		obj, _, err = info.Serializer.Decode(body, nil, status)
		if err == nil && obj != runtime.Object(status) {
			t.Fatalf("decoded object = %T, want the Status", obj)
		}
	}
	if err != nil {
		t.Fatalf("decoding %s failed: %v, want a Status in %s", mediaType, err, body)
	}
	return status
}

func TestErrorKeepsStatusOfWrappedError(t *testing.T) {
	inner := apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "a")
	w := answer("", fmt.Errorf("look up: %w", inner))
	if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), `"name":"a"`) {
		t.Errorf("response to a wrapped NotFound = %d %s, want 404 with the name a", w.Code, w.Body)
	}
	if w = answer("", errors.New("out of cheese")); w.Code != http.StatusInternalServerError {
		t.Errorf("response to an ordinary error = %d, want 500", w.Code)
	}
	odd := &apierrors.StatusError{ErrStatus: metav1.Status{Code: 7}}
	if w = answer("", odd); w.Code != http.StatusInternalServerError {
		t.Errorf("response to an error with the code 7 = %d, want 500", w.Code)
	}
}

func TestErrorIsNotCachedAsDocument(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header().Set("ETag", `"x"`)
	w.Header().Set("Cache-Control", "public, immutable")
	Error(w, httptest.NewRequest(http.MethodGet, "/", nil), errors.New("no"))
	if w.Header().Get("ETag") != "" || w.Header().Get("Cache-Control") != "no-cache, private" {
		t.Errorf("header of an error = %v, want no ETag and no-cache, private", w.Header())
	}
}

func TestObjectIsNegotiated(t *testing.T) {
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	r := httptest.NewRequest(http.MethodGet, "/apis", nil)
	r.Header.Set("Accept", "application/vnd.kubernetes.protobuf")
	w := httptest.NewRecorder()
	Object(w, r, http.StatusOK, list)
	if w.Code != http.StatusOK || !bytes.HasPrefix(w.Body.Bytes(), []byte("k8s\x00")) {
		t.Errorf("response in protobuf = %d %q, want 200 with the prefix k8s", w.Code, w.Body)
	}
	r.Header.Set("Accept", "text/html")
	w = httptest.NewRecorder()
	Object(w, r, http.StatusOK, list)
	if w.Code != http.StatusNotAcceptable || !strings.Contains(w.Body.String(), MediaYAML) {
		t.Errorf("response for text/html = %d %s, want 406 that lists %s", w.Code, w.Body, MediaYAML)
	}
}

func TestHeadHasNoBody(t *testing.T) {
	w := httptest.NewRecorder()
	Error(w, httptest.NewRequest(http.MethodHead, "/", nil), errors.New("no"))
	if w.Body.Len() != 0 || w.Header().Get("Content-Length") == "" {
		t.Errorf("response to HEAD = header %v and body %q, want a Content-Length and no body", w.Header(), w.Body)
	}
}

func TestParseAcceptSortsByQualityThenPosition(t *testing.T) {
	for name, c := range map[string]struct {
		accept []string
		want   []string
	}{
		"nothing":                     {nil, nil},
		"as they came":                {[]string{"application/json, application/yaml"}, []string{"application/json", "application/yaml"}},
		"by quality":                  {[]string{"application/json;q=0.2", "text/html, */*;q=0.5"}, []string{"text/html", "*/*", "application/json"}},
		"refused, no weight, no type": {[]string{"a/b;q=0, a/c;q=heavy, ;;;, a/d;q=2, a/e;q=NaN, a/f"}, []string{"a/f"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, clause := range ParseAccept(c.accept...) {
				got = append(got, clause.MediaType)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("ParseAccept(%q) = %q, want %q", c.accept, got, c.want)
			}
		})
	}
	many := strings.Repeat("a/b,", 1000)
	if got := ParseAccept(many); len(got) > maxClauses {
		t.Errorf("ParseAccept returned %d clauses, want at most %d", len(got), maxClauses)
	}
}
