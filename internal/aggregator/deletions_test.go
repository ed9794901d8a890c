package aggregator

import (
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

func TestDeletionsAskForJSON(t *testing.T) {
	asked := map[string]string{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked[r.Method] = r.Header.Get("Accept")
		w.WriteHeader(http.StatusNotFound)
	}))
	defer s.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client, err := metadata.NewForConfig(&rest.Config{Host: s.URL, Transport: jsonDeletions(transport)})
	if err != nil {
		t.Fatal(err)
	}
	things := client.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"})
	_ = things.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}) // all of them end with 404
	_, _ = things.List(t.Context(), metav1.ListOptions{})
	if got := asked[http.MethodDelete]; got != "application/json" {
		t.Errorf("a deletion accepts %q", got)
	}
	if got := asked[http.MethodGet]; got == "application/json" || got == "" {
		t.Errorf("a list accepts %q: metadata in protobuf is what it saves with", got)
	}
}
