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
)

// goOn has the rest of a response served after the handler.
func goOn(w http.ResponseWriter, rest func()) { w.(interface{ Continue(func()) }).Continue(rest) }

// goroutine is the id of the goroutine that calls it.
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

func TestAResponseThatGoesOnAfterTheHandler(t *testing.T) {
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
			var mu sync.Mutex // guards what follows
			var log bytes.Buffer
			s := start(t, Config{
				GoAwayGrace: time.Millisecond, // no request follows
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
								t.Error("the rest is served by the goroutine of the handler")
							}
							if err := r.Context().Err(); err != nil {
								t.Error("the context ends before the response:", err)
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
			for range 3 { // workers are used again
				code, body, trailer, err := fetch(t, client, "https://"+s.address+"/")
				if code != c.code || body != c.body || trailer != c.trailer || (err != nil) != c.fails {
					t.Errorf("it is %d %.20q (%d), %q, %v", code, body, len(body), trailer, err)
				}
				if code, body, _, err := fetch(t, client, "https://"+s.address+"/other"); code != 200 || body != "other" || err != nil {
					t.Errorf("another response is %d %q, %v", code, body, err)
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
				t.Errorf("logged is %q", log.String())
			}
		})
	}
}

// waiting is a server each of whose responses waits for its client to leave, or for a word, after its handler has returned.
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

func TestAResponseThatGoesOnEndsWithItsClient(t *testing.T) {
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

// It counts as a running handler: the client has no stream more than it may, and a shutdown waits for it.
func TestAResponseThatGoesOnCounts(t *testing.T) {
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
			t.Fatal(got)
		}
	}
	s.mu.Lock()
	for c := range s.conns {
		c.mu.Lock()
		if c.handling != 2 || c.open != 2 {
			t.Errorf("%d run, and %d are open", c.handling, c.open)
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
			t.Fatal("the shutdown has not waited:", err)
		case words <- "bye":
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if got := <-lines; got != "bye" {
			t.Error(got)
		}
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}

// The worker of the handler, whose stack is large, takes the next request.
func TestAResponseThatGoesOnFreesItsWorker(t *testing.T) {
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
		runtime.Gosched() // the last worker is idle a little after its response goes on
	}
	if n := idle(); n == 0 || n > 10 {
		t.Errorf("%d workers are idle: those of the handlers were not used again", n)
	}
}
