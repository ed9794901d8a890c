package semantics

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
)

const (
	mediaJSON     = "application/json"
	mediaYAML     = "application/yaml"
	mediaProtobuf = "application/vnd.kubernetes.protobuf"
)

// answer is a response.
type answer struct {
	t      *testing.T
	what   string
	code   int
	header http.Header
	body   []byte
}

// call makes a request. The path may have a query; headers are pairs.
func call(t *testing.T, method, path string, body []byte, headers ...string) *answer {
	t.Helper()
	request, err := http.NewRequestWithContext(within(t), method, front.config.Host+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != nil {
		request.Header.Set("Content-Type", mediaJSON)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := front.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return &answer{t, method + " " + path, response.StatusCode, response.Header, got}
}

// want ends the test unless the answer has one of the codes.
func (a *answer) want(codes ...int) *answer {
	a.t.Helper()
	for _, code := range codes {
		if a.code == code {
			return a
		}
	}
	a.t.Fatalf("response to %s: status = %d, want %v: %s", a.what, a.code, codes, a.head())
	return nil
}

// says ends the test unless the response contains a text.
func (a *answer) says(text string) *answer {
	a.t.Helper()
	if !strings.Contains(string(a.body), text) {
		a.t.Fatalf("response to %s: want %q in %s", a.what, text, a.head())
	}
	return a
}

// head is enough of the body for a person.
func (a *answer) head() string { return string(a.body[:min(len(a.body), 2000)]) }

// object reads a body in JSON.
func (a *answer) object() *unstructured.Unstructured {
	a.t.Helper()
	object := &unstructured.Unstructured{}
	a.into(&object.Object)
	return object
}

func (a *answer) into(to any) {
	a.t.Helper()
	if err := json.Unmarshal(a.body, to); err != nil {
		a.t.Fatalf("body of %s: %v, want JSON in %s", a.what, err, a.head())
	}
}

// status reads the Status of a refusal.
func (a *answer) status() metav1.Status {
	a.t.Helper()
	var status metav1.Status
	a.into(&status)
	if status.Kind != "Status" || int(status.Code) != a.code {
		a.t.Fatalf("%s: body of the response %d = %s, want a Status with the code", a.what, a.code, a.head())
	}
	return status
}

// refused ends the test unless the answer is a Status of a code and a reason.
func (a *answer) refused(code int, reason metav1.StatusReason) metav1.Status {
	a.t.Helper()
	status := a.want(code).status()
	if status.Reason != reason {
		a.t.Fatalf("%s: got reason %q, want %q: %s", a.what, status.Reason, reason, a.head())
	}
	return status
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	encoded, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

// query is pairs of names and values as the query of a URL.
func query(pairs ...string) string {
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		values.Add(pairs[i], pairs[i+1])
	}
	return "?" + values.Encode()
}
