package http1

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"portico.dev/internal/httpengine/httpmsg"
)

// await waits for a signal that should arrive soon.
func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(never):
		t.Fatalf("no signal within %s for %s, want one", never, what)
	}
}

func write(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

// The context of a running handler ends when its client disconnects.
func TestBothServersDisconnectCancelsRequest(t *testing.T) {
	for _, c := range []struct {
		name    string
		raw     string
		handler http.HandlerFunc // until the disconnect
	}{
		{"before the handler has done anything", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", func(http.ResponseWriter, *http.Request) {}},
		{"after the answer has begun", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", func(w http.ResponseWriter, _ *http.Request) { say(w, "x"); flush(w) }},
		{"after its body was read", sized(10_000), func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }},
		{"after its chunks were read", inChunks(10_000, 100), func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }},
		{"within the body", post + "Content-Length: 100\r\n\r\nhello", nil},
		{"within chunks", chunky + "5\r\nhello\r\n", nil},
	} {
		for _, how := range []string{"closes", "closes its half"} {
			t.Run(c.name+", "+how, func(t *testing.T) {
				began, heard := make(chan struct{}, 2), make(chan error, 2)
				h := func(_ http.ResponseWriter, r *http.Request) {
					began <- struct{}{}
					_, err := io.Copy(io.Discard, r.Body)
					if _, ok := r.Context().(*httpmsg.Context); ok && r.Context().Err() == nil {
						t.Error("request context is active after the body failed, want it ended")
					}
					heard <- err
				}
				if c.handler != nil {
					h = func(w http.ResponseWriter, r *http.Request) {
						c.handler(w, r)
						began <- struct{}{}
						<-r.Context().Done()
						heard <- context.Cause(r.Context())
					}
				}
				onBoth(t, rules{tls: true}, h, func(t *testing.T, a *serverUnderTest) {
					conn := a.dial(t)
					write(t, conn, c.raw)
					await(t, "the handler", began)
					if how == "closes" {
						_ = conn.Close()
					} else {
						_ = conn.(interface{ CloseWrite() error }).CloseWrite()
					}
					select {
					case err := <-heard:
						if err == nil {
							t.Error("error in the handler after the client disconnected = nil, want an error")
						}
					case <-time.After(never):
						t.Fatal("handler did not notice the disconnect, want an error")
					}
				})
			})
		}
	}
}

// A client that sends another request is served after the handler has returned, independent of its duration.
func TestBothServersServeRequestAfterLongHandler(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	onBoth(t, rules{tls: true}, probed(func(w http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		<-release
		say(w, "done "+r.URL.Path)
		if err := r.Context().Err(); err != nil {
			t.Error(err)
		}
	}), func(t *testing.T, a *serverUnderTest) {
		conn := a.dial(t)
		b := bufio.NewReader(conn)
		for _, path := range []string{"/one", "/two"} {
			write(t, conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
		}
		write(t, conn, "G")
		for _, path := range []string{"/one", "/two"} {
			await(t, "the handler", began)
			// At the end of the handler, unread bytes may or may not be present.
			release <- struct{}{}
			res, err := http.ReadResponse(b, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(res.Body); err != nil || string(body) != "done "+path {
				t.Fatalf("body = %q, error %v, want \"done %s\"", body, err, path)
			}
		}
		if got := readAnswers(t, hear(t, conn, probe[1:])); len(got) != 1 {
			t.Errorf("last responses = %q, want 1", got)
		}
	})
}

// Connections that exceed a timeout end without a response.
func TestBothServersDisconnectSlowClients(t *testing.T) {
	for _, c := range []struct {
		name  string
		rules rules
		raw   string
		drips bool // sends one more byte at a time
	}{
		{"nothing at all", rules{head: 200 * time.Millisecond}, "", false},
		{"half a head", rules{head: 200 * time.Millisecond}, "GET / HTTP/1.1\r\nHost: x\r\nA: ", false},
		{"an empty line", rules{head: 200 * time.Millisecond}, "\r\n", false},
		{"drops of a head", rules{head: 200 * time.Millisecond}, "GET / HTTP/1.1\r\nHost: x\r\nA: ", true},
		{"half a second head", rules{head: 200 * time.Millisecond}, "GET /probe HTTP/1.1\r\nHost: probe\r\n\r\nGET / HT", false},
		{"idle after a request", rules{idle: 200 * time.Millisecond}, "GET /probe HTTP/1.1\r\nHost: probe\r\n\r\n", false},
		{"idle after a body nobody read", rules{idle: 200 * time.Millisecond}, "POST /probe HTTP/1.1\r\nHost: probe\r\nContent-Length: 5\r\n\r\nhello", false},
		{"a body that nobody reads and that does not come", rules{head: 200 * time.Millisecond}, "POST /probe HTTP/1.1\r\nHost: probe\r\nContent-Length: 5\r\n\r\nhell", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, p := range implementations {
				if p.name == library && strings.Contains(c.name, "nobody reads and") {
					continue // It waits without a timeout.
				}
				if p.name == library && (c.name == "an empty line" || c.name == "half a second head") {
					continue // It responds with 400.
				}
				c.rules.tls = true
				a := p.open(t, c.rules, probed(func(http.ResponseWriter, *http.Request) { t.Error("handler was called, want no call") }))
				conn := a.dial(t)
				write(t, conn, c.raw)
				came, err := untilItEnds(conn, c.drips)
				if err != nil {
					t.Errorf("%s: connection is open after %q: %v, want it closed", p.name, came, err)
				}
				for i, answer := range readAnswers(t, came) {
					if i > 0 || !strings.Contains(c.raw, "probe") || !strings.Contains(answer, "200 OK") {
						t.Errorf("%s: response = %s, want none or 200 for the first request", p.name, answer)
					}
				}
			}
		})
	}
}

// untilItEnds reads until the connection ends. If drips is set, it writes one byte at a time.
func untilItEnds(c net.Conn, drips bool) (string, error) {
	var all []byte
	room := make([]byte, 1000)
	for end := time.Now().Add(never); ; {
		at := end
		if drips {
			at = time.Now().Add(10 * time.Millisecond)
		}
		_ = c.SetReadDeadline(at)
		n, err := c.Read(room)
		all = append(all, room[:n]...)
		switch {
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return string(all), nil
		case time.Now().After(end):
			return string(all), err
		default:
			_, _ = io.WriteString(c, "x") // Read reports the error.
		}
	}
}

// Deadlines set by a handler apply to its request only.
func TestBothServersHandlerDeadlines(t *testing.T) {
	t.Run("of a body that comes slowly", func(t *testing.T) {
		onBoth(t, rules{tls: true}, func(w http.ResponseWriter, r *http.Request) {
			if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
				t.Error(err)
			}
			if _, err := io.Copy(io.Discard, r.Body); !isTimeout(err) {
				t.Errorf("read of the body: error = %v, want a timeout", err)
			}
			w.WriteHeader(http.StatusRequestTimeout)
		}, func(t *testing.T, a *serverUnderTest) {
			conn := a.dial(t)
			write(t, conn, post+"Content-Length: 1000000\r\n\r\nhello")
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != http.StatusRequestTimeout || !res.Close {
				t.Errorf("response = %s, close %v, want 408 and the end of the connection", res.Status, res.Close)
			}
		})
	})
	t.Run("of a client that does not read", func(t *testing.T) {
		failed := make(chan struct{}, 1)
		// Only for Portico's server: net/http's waits five seconds for a client that does not read.
		a := implementations[1].open(t, rules{tls: true}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
				t.Error(err)
			}
			for {
				if _, err := io.WriteString(w, hundred); err != nil {
					failed <- struct{}{}
					return
				}
			}
		}))
		conn := a.dial(t)
		write(t, conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		await(t, "the write to fail", failed)
		if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
			t.Error("connection is open after a failed write, want it closed")
		}
	})
	t.Run("of the request before", func(t *testing.T) {
		onBoth(t, rules{tls: true}, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/first" {
				w.Header().Set("Content-Length", "5")
				say(w, "first")
				flush(w) // All of it is sent before the deadline, even on a busy machine.
				c := http.NewResponseController(w)
				_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
				_ = c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
				return
			}
			say(w, "second")
		}, func(t *testing.T, a *serverUnderTest) {
			conn := a.dial(t)
			b := bufio.NewReader(conn)
			write(t, conn, "GET /first HTTP/1.1\r\nHost: x\r\n\r\n")
			if res, err := http.ReadResponse(b, nil); err != nil {
				t.Fatal(err)
			} else if _, err := io.Copy(io.Discard, res.Body); err != nil {
				t.Fatal(err)
			}
			<-time.After(100 * time.Millisecond) // The deadlines must have passed.
			write(t, conn, "GET /second HTTP/1.1\r\nHost: x\r\n\r\n")
			if _, err := http.ReadResponse(b, nil); err != nil && a.name == ours {
				t.Error(err) // net/http's write deadline stays set.
			}
		})
	})
}

func TestBothServersShutdown(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	h := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/busy" {
			began <- struct{}{}
			<-release
		}
		say(w, "answered")
	}
	onBoth(t, rules{tls: true}, h, func(t *testing.T, a *serverUnderTest) {
		dial := func() (net.Conn, *bufio.Reader) {
			c := a.dial(t)
			b := bufio.NewReader(c)
			write(t, c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			answer(t, b, false)
			return c, b
		}
		_, idle := dial()
		busyConn, busy := dial()
		write(t, busyConn, "GET /busy HTTP/1.1\r\nHost: x\r\n\r\nGET /never HTTP/1.1\r\nHost: x\r\n\r\n")
		await(t, "the handler", began)
		done := make(chan error, 1)
		var all sync.WaitGroup
		all.Go(func() { done <- a.shutdown(context.Background()) })
		defer all.Wait()
		if rest, err := io.ReadAll(idle); err != nil || len(rest) > 0 {
			t.Errorf("idle connection after Shutdown = %q, error %v, want its end", rest, err)
		}
		select {
		case err := <-done:
			t.Errorf("Shutdown returned before the request ended: %v, want it to wait", err)
		default:
		}
		late := a.dial(t)
		_, _ = io.WriteString(late, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if rest, err := io.ReadAll(late); isTimeout(err) || len(rest) > 0 {
			t.Errorf("new connection during Shutdown = %q, error %v, want its end", rest, err)
		}
		release <- struct{}{}
		answer(t, busy, true)
		if rest, err := io.ReadAll(busy); isTimeout(err) || len(rest) > 0 {
			t.Errorf("connection after its last response = %q, error %v, want its end", rest, err)
		}
		_ = busyConn.Close()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(never):
			t.Error("Shutdown did not return after the last response, want it to return")
		}
	})
	t.Run("half a head", func(t *testing.T) { // net/http's server drops a partially read header.
		a := implementations[1].open(t, rules{tls: true}, http.HandlerFunc(h))
		half := a.pipe(t)
		b := bufio.NewReader(half)
		write(t, half, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		answer(t, b, false)
		write(t, half, "GET / HTTP/1.1\r\nHo")
		write(t, half, "s") // When this byte is read, the earlier bytes have been processed.
		done := make(chan error, 1)
		go func() { done <- a.shutdown(context.Background()) }()
		for late := a.dial(t); ; late = a.dial(t) { // A new connection ends at once during the shutdown.
			_, _ = io.WriteString(late, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			if rest, _ := io.ReadAll(late); len(rest) == 0 {
				break
			}
		}
		write(t, half, "t: x\r\n\r\n")
		answer(t, b, true)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Run("that has no time", func(t *testing.T) {
		onBoth(t, rules{tls: true}, h, func(t *testing.T, a *serverUnderTest) {
			conn := a.dial(t)
			write(t, conn, "GET /busy HTTP/1.1\r\nHost: x\r\n\r\n")
			await(t, "the handler", began)
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if err := a.shutdown(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("Shutdown with a canceled context: error = %v, want context.Canceled", err)
			}
			release <- struct{}{}
			answer(t, bufio.NewReader(conn), true)
		})
	})
}

func answer(t *testing.T, b *bufio.Reader, last bool) {
	t.Helper()
	res, err := http.ReadResponse(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil || string(body) != "answered" || res.Close != last {
		t.Errorf("response = %q, error %v, close %v, want \"answered\" and close %v", body, err, res.Close, last)
	}
}

func TestBothServersClose(t *testing.T) {
	began, heard := make(chan struct{}), make(chan struct{}, 2)
	onBoth(t, rules{tls: true}, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/busy" {
			began <- struct{}{}
			<-r.Context().Done()
			heard <- struct{}{}
		}
	}, func(t *testing.T, a *serverUnderTest) {
		idle, busy, half := a.dial(t), a.dial(t), a.dial(t)
		write(t, half, "GET / HTT")
		write(t, idle, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, err := http.ReadResponse(bufio.NewReader(idle), nil); err != nil {
			t.Fatal(err)
		}
		write(t, busy, "GET /busy HTTP/1.1\r\nHost: x\r\n\r\n")
		await(t, "the handler", began)
		a.cut()
		await(t, "the handler to hear of it", heard)
		for _, c := range []net.Conn{idle, busy, half} {
			if rest, err := io.ReadAll(c); isTimeout(err) || len(rest) > 0 {
				t.Errorf("connection after Close = %q, error %v, want its end", rest, err)
			}
		}
	})
}
