package http2_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// A handler whose client has disconnected receives a canceled context and write errors.
func TestDisconnectCancelsRequest(t *testing.T) {
	for name, leave := range map[string]func(*peer, uint32){
		"RST_STREAM":                func(p *peer, id uint32) { p.tell(p.WriteRSTStream(id, http2.ErrCodeCancel)) },
		"the end of the connection": func(p *peer, _ uint32) { _ = p.conn.NetConn().Close() },
	} {
		t.Run(name, func(t *testing.T) {
			results := make(chan error, 4)
			handler := func(w http.ResponseWriter, r *http.Request) {
				c := http.NewResponseController(w)
				_ = c.Flush()
				read := make(chan error)
				go func() {
					_, err := io.Copy(io.Discard, r.Body)
					read <- err
				}()
				<-r.Context().Done()
				if !errors.Is(r.Context().Err(), context.Canceled) {
					results <- fmt.Errorf("the context says %v", r.Context().Err())
				}
				if err := <-read; err == nil {
					results <- errors.New("the body ended as if it was whole")
				}
				var err error
				for i := 0; i < 1000 && err == nil; i++ {
					_, err = w.Write(make([]byte, 8192))
				}
				if err == nil {
					results <- errors.New("writing goes on for ever")
				}
				results <- nil
			}
			onBothSides(t, options{}, handler, func(t *testing.T, s *testServer, _ string) {
				p := s.greet(t)
				id := p.open(false, request("POST", "/")...)
				p.awaitUntil(id, func(a *answer) bool { return a.header != nil })
				leave(p, id)
				for err := range results {
					if err == nil {
						return
					}
					t.Error(err)
				}
			})
		})
	}
}

// A handler that waits for a window is released when its client disconnects.
func TestBlockedWritersEndOnDisconnect(t *testing.T) {
	blocked, done := make(chan struct{}), make(chan error)
	handler := func(w http.ResponseWriter, _ *http.Request) {
		close := func() { blocked <- struct{}{} }
		close()
		_, err := w.Write(make([]byte, 1<<20))
		done <- err
	}
	onBothSides(t, options{}, handler, func(t *testing.T, s *testServer, _ string) {
		p := s.greet(t)
		p.deaf = true
		for range 3 {
			p.get("/")
			<-blocked
		}
		for id := uint32(1); id <= 5; id += 2 {
			p.tell(p.WriteRSTStream(id, http2.ErrCodeCancel))
			if err := <-done; err == nil {
				t.Error("write on a reset stream: error = nil, want an error")
			}
		}
	})
}

func TestHandlerDeadlines(t *testing.T) {
	result := make(chan string, 1)
	past := time.Unix(1, 0)
	soon := func() time.Time { return time.Now().Add(20 * time.Millisecond) }
	failed := func(err error) string {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return "deadline"
		}
		return fmt.Sprint(err)
	}
	for _, test := range []struct {
		name    string
		handler http.HandlerFunc
		want    []string
		answer  string // "": any
	}{
		{"reading, in a moment", func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).SetReadDeadline(soon())
			_, err := io.ReadAll(r.Body)
			result <- failed(err)
		}, []string{"deadline"}, "200"},
		{"reading, in the past", func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).SetReadDeadline(past)
			_, err := io.ReadAll(r.Body)
			result <- failed(err)
		}, []string{"deadline"}, "200"},
		{"writing, in the past", func(w http.ResponseWriter, r *http.Request) {
			c := http.NewResponseController(w)
			_ = c.SetWriteDeadline(past)
			_, err := w.Write(make([]byte, 10_000))
			if err == nil {
				err = c.Flush()
			}
			result <- map[bool]string{true: "error", false: "none"}[err != nil]
		}, []string{"error", "none"}, "RST INTERNAL_ERROR"},
		{"writing against a window, in a moment", func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).SetWriteDeadline(soon())
			_, err := w.Write(make([]byte, 1<<20))
			result <- map[bool]string{true: "error", false: "none"}[err != nil]
		}, []string{"error"}, "RST INTERNAL_ERROR"},
		{"deadlines that are taken back", func(w http.ResponseWriter, r *http.Request) {
			c := http.NewResponseController(w)
			_ = c.SetReadDeadline(soon().Add(time.Hour))
			_ = c.SetWriteDeadline(soon().Add(time.Hour))
			_ = c.SetReadDeadline(time.Time{})
			_ = c.SetWriteDeadline(time.Time{})
			_, err := w.Write([]byte("x"))
			result <- fmt.Sprint(err)
		}, []string{"<nil>"}, "200"},
	} {
		t.Run(test.name, func(t *testing.T) {
			onBothSides(t, options{}, test.handler, func(t *testing.T, s *testServer, _ string) {
				p := s.greet(t)
				p.deaf = true
				a := p.await(p.open(false, request("POST", "/")...))
				if got := <-result; !strings.Contains(strings.Join(test.want, " "), got) {
					t.Errorf("result in the handler = %q, want %q", got, test.want)
				}
				got := a.status()
				if a.reset != "" && test.answer != "200" {
					got = "RST " + a.reset
				}
				if got != test.answer {
					t.Errorf("response = %s, want %s", got, test.answer)
				}
			})
		})
	}
}
