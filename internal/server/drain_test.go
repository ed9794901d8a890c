package server

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"portico.dev/internal/filters"
	"portico.dev/internal/request"
)

// A server that sheds ends what runs for long, serves on, and asks clients to come by other connections until it keeps them.
func TestADrainerSheds(t *testing.T) {
	d := NewDrainer()
	began, ended := make(chan struct{}), make(chan struct{})
	h := filters.RequestInfo(request.NewResolver())(d.filter()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			close(began)
			<-r.Context().Done()
			close(ended)
		}
	})))
	ask := func(target string) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, withRequestContext(httptest.NewRequest(http.MethodGet, target, nil)))
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d", target, w.Code)
		}
		return w.Header().Get("Connection")
	}
	const pods = "/api/v1/pods"
	go ask(pods + "?watch=1")
	<-began
	if got := ask(pods); got != "" {
		t.Errorf("Connection: %s before", got)
	}
	d.Shed()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("the watch goes on")
	}
	if got := ask(pods); got != "close" {
		t.Errorf("Connection: %q while shedding", got)
	}
	began, ended = make(chan struct{}), make(chan struct{})
	go ask(pods + "?watch=1")
	<-began
	select {
	case <-ended:
		t.Error("a watch that began later is ended by the round before")
	default:
	}
	d.Keep()
	if got := ask(pods); got != "" {
		t.Errorf("Connection: %q when clients are kept again", got)
	}
	d.Shed()
	<-ended
}
