package coreapi

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

func get(t *testing.T, ctx context.Context, h http.Handler) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://in-process.invalid/path?q=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	return InProcess(h).RoundTrip(r)
}

func handler(f func(w http.ResponseWriter, r *http.Request)) http.Handler { return http.HandlerFunc(f) }

func TestInProcess(t *testing.T) {
	t.Run("the handler sees a request like any other", func(t *testing.T) {
		answer, err := get(t, within(t), handler(func(w http.ResponseWriter, r *http.Request) {
			if r.RequestURI != "/path?q=1" || r.Body == nil || r.Host == "" {
				t.Errorf("request in the handler = %+v, want the RequestURI /path?q=1, a body and a host", r)
			}
			w.Header().Set("X-Before", "yes")
			w.WriteHeader(http.StatusTeapot)
			w.Header().Set("X-After", "too late")
			_, _ = io.WriteString(w, "short and stout")
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusTeapot || string(body) != "short and stout" {
			t.Fatalf("response = %d %q, %v, want 418 and \"short and stout\"", answer.StatusCode, body, err)
		}
		if answer.Header.Get("X-Before") != "yes" || answer.Header.Get("X-After") != "" {
			t.Fatalf("response headers = %v, want X-Before and not X-After", answer.Header)
		}
	})
	t.Run("what is flushed can be read at once", func(t *testing.T) {
		more := make(chan struct{})
		answer, err := get(t, within(t), handler(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "first\n")
			w.(http.Flusher).Flush()
			<-more
			_, _ = io.WriteString(w, "second\n")
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		lines := bufio.NewScanner(answer.Body)
		if !lines.Scan() || lines.Text() != "first" {
			t.Fatalf("first line = %q, %v, want \"first\"", lines.Text(), lines.Err())
		}
		close(more)
		if !lines.Scan() || lines.Text() != "second" || lines.Scan() {
			t.Fatalf("last line = %q, %v, want \"second\"", lines.Text(), lines.Err())
		}
	})
	t.Run("closing the body ends the handler", func(t *testing.T) {
		ended := make(chan struct{})
		answer, err := get(t, within(t), handler(func(w http.ResponseWriter, r *http.Request) {
			defer close(ended)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}))
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		<-ended
	})
	t.Run("a reader that left does not hold a handler that writes", func(t *testing.T) {
		ctx, leave := context.WithCancel(within(t))
		ended := make(chan error, 1)
		answer, err := get(t, ctx, handler(func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			for {
				if _, err := io.WriteString(w, strings.Repeat("x", 1<<10)); err != nil {
					ended <- err
					return
				}
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		leave()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatalf("error of the handler after the reader left = %v, want context.Canceled", err)
		}
	})
	t.Run("a caller that gives up gets its own error", func(t *testing.T) {
		ctx, leave := context.WithCancel(within(t))
		_, err := get(t, ctx, handler(func(_ http.ResponseWriter, r *http.Request) {
			leave()
			<-r.Context().Done()
		}))
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("error of the canceled request = %v, want context.Canceled", err)
		}
	})
	t.Run("an abort in the middle is no end", func(t *testing.T) {
		answer, err := get(t, within(t), handler(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if _, err := io.ReadAll(answer.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("error of the body after an abort = %v, want io.ErrUnexpectedEOF", err)
		}
	})
}
