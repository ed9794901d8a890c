package apiclient_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"portico.dev/internal/auth/authtest"
	"portico.dev/internal/clients/apiclient"
)

// This client reads responses and refusals as client-go's clientset does.
func TestResponseParsingMatchesClientGo(t *testing.T) {
	for _, c := range []struct {
		situation string
		code      int
		body      string
	}{
		{"an object", 200, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c","namespace":"ns","labels":{"a":"b"}},"data":{"k":"v"}}`},
		{"a Status", 403, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":"no"}`},
		{"a Status with details", 404, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":404,"reason":"NotFound","message":"none","details":{"name":"c","kind":"configmaps"}}`},
		{"a conflict", 409, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":409,"reason":"Conflict","message":"changed"}`},
		{"a page", 502, "<html>bad gateway</html>"},
		{"a page that forbids", 403, "<html>no</html>"},
		{"a page of a path that is not there", 404, "404 page not found\n"},
		{"nothing", 401, ""},
		{"a server that times out", 504, ""},
		{"a server with a fault", 500, "panic"},
	} {
		t.Run(c.situation, func(t *testing.T) {
			server := authtest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(c.code)
				fmt.Fprint(w, c.body)
			}))
			config := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: server.RootPEM}}
			client, err := apiclient.New(config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(client.Close)
			library, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			var ours corev1.ConfigMap
			oursErr := client.Get(t.Context(), "/api/v1/namespaces/ns/configmaps/c", nil, "", &ours)
			theirs, theirsErr := library.CoreV1().ConfigMaps("ns").Get(t.Context(), "c", metav1.GetOptions{})
			if theirsErr == nil {
				if oursErr != nil || ours.Data["k"] != theirs.Data["k"] || ours.Name != theirs.Name || ours.Labels["a"] != theirs.Labels["a"] {
					t.Errorf("Get = %+v, %v; want client-go's %+v", ours, oursErr, theirs)
				}
				return
			}
			var refused *apiclient.Error
			var status apierrors.APIStatus
			if !errors.As(oursErr, &refused) || !errors.As(theirsErr, &status) {
				t.Fatalf("Get error = %v, want client-go's %v", oursErr, theirsErr)
			}
			if status, ours := status.Status(), refused.StatusError().ErrStatus; ours.Code != status.Code || ours.Reason != status.Reason {
				t.Errorf("Status of the error = %d %s, want client-go's %d %s", ours.Code, ours.Reason, status.Code, status.Reason)
			}
		})
	}
}
