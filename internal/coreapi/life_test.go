package coreapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestServerServesWhenStoreIsReady(t *testing.T) {
	begun := time.Now()
	h := start(t)
	t.Logf("store and local groups ready after %s", time.Since(begun))
	if _, err := h.typed(t, admin).CoreV1().Namespaces().List(within(t), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestTwoServersInOneProcessAreIndependent(t *testing.T) {
	one, two := start(t), start(t)
	namespace(t, one.typed(t, admin), "only-in-one")
	_, err := two.typed(t, admin).CoreV1().Namespaces().Get(within(t), "only-in-one", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Fatalf("GET at the other server: error = %v, want NotFound", err)
	}
}

func TestObjectsSurviveRestart(t *testing.T) {
	dir := t.TempDir()
	t.Run("first life", func(t *testing.T) {
		namespace(t, startIn(t, dir).typed(t, admin), "kept")
	})
	t.Run("second life", func(t *testing.T) {
		if _, err := startIn(t, dir).typed(t, admin).CoreV1().Namespaces().Get(within(t), "kept", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRequestsBeforeReadinessGet503OrWait(t *testing.T) {
	h := start(t)
	fresh, err := New(h.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a request from outside is told to come back", func(t *testing.T) {
		w := httptest.NewRecorder()
		fresh.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/namespaces", nil))
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Fatalf("GET before readiness = %d %v, want 503 with Retry-After", w.Code, w.Header())
		}
	})
	t.Run("a request from inside waits", func(t *testing.T) {
		answered := make(chan error, 1)
		client := fresh.typedOf(t)
		go func() {
			_, err := client.CoreV1().Namespaces().List(within(t), metav1.ListOptions{})
			answered <- err
		}()
		runUntilEnd(t, "local groups", fresh.Run, fresh.Ready())
		if err := <-answered; err != nil {
			t.Fatal(err)
		}
	})
}

func TestStoppingEndsWatches(t *testing.T) {
	h := start(t)
	second, err := New(h.cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- second.Run(ctx) }()
	client := second.typedOf(t)
	watch, err := client.CoreV1().ConfigMaps("").Watch(within(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(drainTimeout):
		t.Fatalf("the server with an open watch is still running after %s, want it stopped", drainTimeout)
	}
	for range watch.ResultChan() {
	}
	if _, err := client.CoreV1().ConfigMaps("").List(within(t), metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Fatalf("list at a stopped server: error = %v, want ServiceUnavailable", err)
	}
}

func TestHandlerPanicEndsOnlyItsRequest(t *testing.T) {
	config := clientOver(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("oh") }))
	_, err := clientFor(t, config).CoreV1().Namespaces().Get(within(t), "x", metav1.GetOptions{})
	if err == nil {
		t.Fatal("GET of a handler that panics returned no error, want an error")
	}
}
