package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"portico.dev/internal/httpengine/engine"
)

// goOn lets the rest of a response be served after the handler has returned.
func goOn(w http.ResponseWriter, rest func()) { w.(engine.ResponseWriter).Continue(rest) }

// goroutine returns the ID of the calling goroutine.
func goroutine() string {
	var room [64]byte
	id, _, _ := strings.Cut(strings.TrimPrefix(string(room[:runtime.Stack(room[:], false)]), "goroutine "), " ")
	return id
}

// fetch returns the status, body and trailer of a response.
func fetch(t *testing.T, c *http.Client, url string) (code int, body, trailer string, err error) {
	t.Helper()
	res, err := c.Get(url)
	if err != nil {
		return 0, "", "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), res.Trailer.Get("Sum"), err
}

func TestResponseMayContinueAfterHandler(t *testing.T) {
	for name, c := range map[string]struct {
		handler func(w http.ResponseWriter, r *http.Request, rest func(func()))
		code    int
		body    string
		trailer string
		fails   bool
		logged  bool
	}{
		"begun before": {func(w http.ResponseWriter, _ *http.Request, rest func(func())) {
			_, _ = io.WriteString(w, "a")
			w.(http.Flusher).Flush()
			rest(func() { _, _ = io.WriteString(w, "b") })
		}, 200, "ab", "", false, false},
		"buffered before": {func(w http.ResponseWriter, _ *http.Request, rest func(func())) {
			w.WriteHeader(201)
			_, _ = io.WriteString(w, "a")
			rest(func() { _, _ = io.WriteString(w, "b") })
		}, 201, "ab", "", false, false},
		"begun after": {func(w http.ResponseWriter, _ *http.Request, rest func(func())) {
			rest(func() {
				w.WriteHeader(202)
				_, _ = io.WriteString(w, strings.Repeat("b", 10_000))
			})
		}, 202, strings.Repeat("b", 10_000), "", false, false},
		"with nothing": {func(_ http.ResponseWriter, _ *http.Request, rest func(func())) { rest(func() {}) }, 200, "", "", false, false},
		"with a trailer": {func(w http.ResponseWriter, _ *http.Request, rest func(func())) {
			w.Header().Set("Trailer", "Sum")
			_, _ = io.WriteString(w, "a")
			w.(http.Flusher).Flush()
			rest(func() { w.Header().Set("Sum", "1") })
		}, 200, "a", "1", false, false},
		"several times": {func(w http.ResponseWriter, _ *http.Request, rest func(func())) {
			rest(func() {
				_, _ = io.WriteString(w, "a")
				rest(func() { _, _ = io.WriteString(w, "b") })
			})
		}, 200, "ab", "", false, false},
		"that panics": {func(w http.ResponseWriter, _ *http.Request, rest func(func())) {
			_, _ = io.WriteString(w, "a")
			w.(http.Flusher).Flush()
			rest(func() { panic("secret") })
		}, 200, "a", "", true, true},
		"that aborts": {func(w http.ResponseWriter, _ *http.Request, rest func(func())) {
			_, _ = io.WriteString(w, "a")
			w.(http.Flusher).Flush()
			rest(func() { panic(http.ErrAbortHandler) })
		}, 200, "a", "", true, false},
		"whose goroutine ends": {func(w http.ResponseWriter, _ *http.Request, rest func(func())) {
			_, _ = io.WriteString(w, "a")
			w.(http.Flusher).Flush()
			rest(runtime.Goexit)
		}, 200, "a", "", true, false},
		"taken back by a panic": {func(w http.ResponseWriter, _ *http.Request, rest func(func())) {
			rest(func() { _, _ = io.WriteString(w, "never") })
			panic("secret")
		}, 0, "", "", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex // guards the fields below
			var log bytes.Buffer
			s := start(t, Config{
				GoAwayGrace: time.Millisecond, // No request follows.
				Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/other" {
						w.Header().Set("Other", "1")
						_, _ = io.WriteString(w, "other")
						return
					}
					handler := goroutine()
					c.handler(w, r, func(rest func()) {
						goOn(w, func() {
							if goroutine() == handler {
								t.Error("rest of the response runs on the goroutine of the handler, want another goroutine")
							}
							if err := r.Context().Err(); err != nil {
								t.Errorf("context ended before the response: %v, want it active", err)
							}
							rest()
						})
					})
				}),
				Logf: func(format string, args ...any) {
					mu.Lock()
					defer mu.Unlock()
					fmt.Fprintf(&log, format, args...)
				},
			})
			client := s.client(t)
			for range 3 { // Workers are reused.
				code, body, trailer, err := fetch(t, client, "https://"+s.address+"/")
				if code != c.code || body != c.body || trailer != c.trailer || (err != nil) != c.fails {
					t.Errorf("response = %d %.20q (%d bytes), trailer %q, error %v, want %d, %d bytes and trailer %q", code, body, len(body), trailer, err, c.code, len(c.body), c.trailer)
				}
				if code, body, _, err := fetch(t, client, "https://"+s.address+"/other"); code != 200 || body != "other" || err != nil {
					t.Errorf("other response = %d %q, error %v, want 200 \"other\"", code, body, err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if err := s.Shutdown(ctx); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(log.String(), "secret") != c.logged {
				t.Errorf("log = %q, want it with the panic: %t", log.String(), c.logged)
			}
		})
	}
}

// waiting starts a server. Each response waits for its client to disconnect or for a word after its handler has returned.
func waiting(t *testing.T, c Config) (s *served, ended <-chan error, words chan<- string) {
	over, say := make(chan error, 100), make(chan string)
	c.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		goOn(w, func() {
			select {
			case word := <-say:
				_, _ = io.WriteString(w, word)
				over <- nil
			case <-r.Context().Done():
				_, err := io.WriteString(w, "x")
				over <- errors.Join(r.Context().Err(), err, http.NewResponseController(w).Flush())
			case <-time.After(30 * time.Second):
				over <- errors.New("nothing has happened")
			}
		})
	})
	return start(t, c), over, say
}

func TestContinuedResponseEndsWithItsClient(t *testing.T) {
	s, ended, _ := waiting(t, Config{})
	res, err := s.client(t).Get("https://" + s.address)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Such a response counts as a running handler. The client has no more streams than allowed, and a shutdown waits.
func TestContinuedResponseCountsAsRunningHandler(t *testing.T) {
	s, ended, words := waiting(t, Config{MaxConcurrentStreams: 2})
	client := s.client(t)
	lines := make(chan string)
	watch := func() {
		res, err := client.Get("https://" + s.address)
		if err != nil {
			t.Error(err)
			return
		}
		defer res.Body.Close()
		lines <- "begun"
		line, err := bufio.NewReader(res.Body).ReadString('\n')
		if err != io.EOF {
			t.Error(err)
		}
		lines <- line
	}
	var all sync.WaitGroup
	defer all.Wait()
	for range 2 {
		all.Go(watch)
		if got := <-lines; got != "begun" {
			t.Fatalf("line = %q, want \"begun\"", got)
		}
	}
	s.mu.Lock()
	for c := range s.conns {
		c.mu.Lock()
		if c.handling != 2 || c.open != 2 {
			t.Errorf("%d handlers run and %d streams are open, want 2 and 2", c.handling, c.open)
		}
		c.mu.Unlock()
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	down := make(chan error)
	all.Go(func() { down <- s.Shutdown(ctx) })
	for range 2 {
		select {
		case err := <-down:
			t.Fatalf("Shutdown returned before the responses: %v, want it to wait", err)
		case words <- "bye":
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if got := <-lines; got != "bye" {
			t.Errorf("line = %q, want \"bye\"", got)
		}
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}

// The handler's worker, which has a large stack, serves the next request.
func TestContinuedResponseReleasesItsWorker(t *testing.T) {
	const responses = 90
	went := make(chan struct{}, responses)
	release := make(chan struct{})
	s := start(t, Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		goOn(w, func() {
			went <- struct{}{}
			<-release
		})
	})})
	defer close(release)
	client := s.client(t)
	for range responses {
		res, err := client.Get("https://" + s.address)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		<-went
	}
	idle := func() int {
		s.pool.mu.Lock()
		defer s.pool.mu.Unlock()
		return len(s.pool.idle)
	}
	for deadline := time.Now().Add(30 * time.Second); idle() == 0 && time.Now().Before(deadline); {
		runtime.Gosched() // The last worker becomes idle shortly after its response continues.
	}
	if n := idle(); n == 0 || n > 10 {
		t.Errorf("%d workers are idle, want 1 to 10: handlers share workers", n)
	}
}
