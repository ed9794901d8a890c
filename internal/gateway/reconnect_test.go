package gateway

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"portico.dev/internal/gateway/adoption"
)

// absentServer is an API server that cannot be reached while away is set. It lists one adopted APIService.
type absentServer struct{ away atomic.Bool }

// RoundTrip implements http.RoundTripper.
func (s *absentServer) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.away.Load() {
		return nil, syscall.ECONNREFUSED
	}
	response := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r}
	if r.URL.Query().Has("sendInitialEvents") { // the informer lists instead
		response.StatusCode = http.StatusUnprocessableEntity
		response.Body = io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":422,"reason":"Invalid"}`))
		return response, nil
	}
	if r.URL.Query().Get("watch") != "" {
		response.Body = &silentWatch{r.Context(), make(chan struct{})}
		return response, nil
	}
	text, err := json.Marshal(apiregistrationv1.APIServiceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIServiceList", APIVersion: "apiregistration.k8s.io/v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: "1"},
		Items: []apiregistrationv1.APIService{{ObjectMeta: metav1.ObjectMeta{
			Name: "v1.example.com", Annotations: map[string]string{adoption.OriginalServiceAnnotation: "default/example"}}}},
	})
	response.Body = io.NopCloser(strings.NewReader(string(text)))
	return response, err
}

// silentWatch sends no events, and ends cleanly with its request or when it is closed. Any other end would be an event, on
// which client-go's watcher blocks for ever without a reader.
type silentWatch struct {
	ctx    context.Context
	closed chan struct{}
}

func (w *silentWatch) Read([]byte) (int, error) {
	select {
	case <-w.ctx.Done():
	case <-w.closed:
	}
	return 0, io.EOF
}

func (w *silentWatch) Close() error {
	close(w.closed)
	return nil
}

func TestInformerReconnectsSoonAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &absentServer{}
		s.away.Store(true)
		client, err := aggregatorclient.NewForConfig(withReconnects(&rest.Config{Host: "http://api-server.invalid", Transport: s}, zap.NewNop()))
		if err != nil {
			t.Fatal(err)
		}
		informer := view{adoption.Service{Namespace: "portico-gateway", Name: "portico-gateway", Port: 443}, client.ApiregistrationV1().APIServices()}.informer().informer
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			informer.RunWithContext(ctx)
		}()
		defer func() {
			cancel()
			<-ended
		}()
		time.Sleep(10 * time.Minute)
		s.away.Store(false)
		began := time.Now()
		for !informer.HasSynced() && time.Since(began) < 2*time.Minute {
			time.Sleep(10 * time.Millisecond)
		}
		if got, want := time.Since(began), 3*time.Second; got > want {
			t.Errorf("the informer had its list %s after the return of the API server, want at most %s", got, want)
		}
		if got := len(informer.GetStore().List()); got != 1 {
			t.Errorf("objects in the informer = %d, want 1", got)
		}
	})
}

func TestNonInformerRequestsFailWithoutWaiting(t *testing.T) {
	s := &absentServer{}
	s.away.Store(true)
	client, err := aggregatorclient.NewForConfig(withReconnects(&rest.Config{Host: "http://api-server.invalid", Transport: s}, zap.NewNop()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.ApiregistrationV1().APIServices().Get(t.Context(), "v1.example.com", metav1.GetOptions{}); err == nil {
		t.Error("Get() = nil, want the error of the connection")
	}
}
