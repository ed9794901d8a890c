package http1

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

func sized(n int) string {
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", n, strings.Repeat("x", n))
}

func inChunks(n, size int) string {
	chunk := fmt.Sprintf("%x\r\n%s\r\n", size, strings.Repeat("x", size))
	return chunky + strings.Repeat(chunk, n/size) + "0\r\nT: v\r\n\r\n"
}

// Handlers that do not simply read the body. Results have the format of verdict.
func TestBothServersUnreadBodies(t *testing.T) {
	ignore := func(w http.ResponseWriter, _ *http.Request) { say(w, "ignored") }
	flushed := func(w http.ResponseWriter, _ *http.Request) { say(w, "ignored"); flush(w) }
	some := func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadFull(r.Body, make([]byte, 5))
		say(w, fmt.Sprint("some ", err))
	}
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		raw     string
		ours    string
		library string // the result of net/http's server if it differs
	}{
		{"10 bytes", ignore, sized(10), "ignored, probe", ""},
		{"200 KiB", ignore, sized(200 << 10), "ignored, probe", ""},
		{"200 KiB after a flush", flushed, sized(200 << 10), "ignored, probe", ""},
		{"1 MiB", ignore, sized(1 << 20), "ignored", ""},
		{"1 MiB after a flush", flushed, sized(1 << 20), "ignored", ""},
		{"200 KiB in chunks", ignore, inChunks(200<<10, 1<<10), "ignored, probe", ""},
		{"1 MiB in chunks", ignore, inChunks(1<<20, 1<<10), "ignored", ""},
		{"a little of 100 KiB", some, sized(100 << 10), "some <nil>, probe", ""},
		{"a little of 1 MiB", some, sized(1 << 20), "some <nil>", ""},
		{"a little of chunks", some, inChunks(64<<10, 64), "some <nil>, probe", ""},
		{"bad chunks", ignore, chunky + "x\r\n", "ignored", ""},
		{"chunks that turn bad", some, chunky + "6\r\nhelloo\n", "some <nil>", ""},
		{"a trailer that is none", some, chunky + "6\r\nhelloo\r\n0\r\nA B\r\n\r\n", "some <nil>", ""},
		{"a body that does not come", some, post + "Content-Length: 10000\r\n\r\nhello", "some <nil>", ""},
		{"chunks that do not come", ignore, chunky + "5\r\nhello\r\n", "ignored", ""},
		{"chunks that are expected and not wanted", ignore, post + coded + "Expect: 100-continue\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "ignored", ""},
		{"closed", func(w http.ResponseWriter, r *http.Request) {
			err := r.Body.Close()
			_, read := r.Body.Read(make([]byte, 1))
			say(w, fmt.Sprint("closed ", err, " ", errors.Is(read, http.ErrBodyReadAfterClose)))
		}, sized(100), "closed <nil> true, probe", ""},
		{"read after the answer", func(w http.ResponseWriter, r *http.Request) {
			say(w, "so ")
			flush(w)
			n, err := io.Copy(io.Discard, r.Body)
			say(w, fmt.Sprint(n, err))
		}, sized(50_000), "so 50000 <nil>, probe", "so 0 http: invalid Read on closed Body, probe"},
		{"read after the answer, as asked for", func(w http.ResponseWriter, r *http.Request) {
			if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
				t.Error(err)
			}
			say(w, "so ")
			flush(w)
			n, err := io.Copy(io.Discard, r.Body)
			say(w, fmt.Sprint(n, err))
		}, inChunks(50_000, 100), "so 50000 <nil>, probe", ""},
		{"too large for a MaxBytesReader", func(w http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 1000))
			var large *http.MaxBytesError
			say(w, fmt.Sprint("large ", errors.As(err, &large)))
		}, sized(1 << 20), "large true", ""},
		{"a deadline that is over", func(w http.ResponseWriter, r *http.Request) {
			if err := http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)); err != nil {
				t.Error(err)
			}
			_, err := io.Copy(io.Discard, r.Body)
			say(w, fmt.Sprint("over ", isTimeout(err)))
		}, sized(1 << 20), "over true", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			onBoth(t, rules{}, probed(c.handler), func(t *testing.T, a *serverUnderTest) {
				want := c.ours
				if a.name == library && c.library != "" {
					want = c.library
				}
				if got := verdict(t, a, c.raw); got != want {
					t.Errorf("verdict = %q, want %q", got, want)
				}
			})
		})
	}
}

// The request and the response writer are unusable after the handler has returned.
func TestBothServersRejectUseAfterHandler(t *testing.T) {
	type kept struct {
		w http.ResponseWriter
		r *http.Request
	}
	last := make(chan kept, 1)
	onBoth(t, rules{}, probed(func(w http.ResponseWriter, r *http.Request) { say(w, "hello"); last <- kept{w, r} }), func(t *testing.T, a *serverUnderTest) {
		c := a.dial(t)
		if _, err := io.WriteString(c, sized(100)); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(res.Body); err != nil || string(body) != "hello" {
			t.Fatalf("body = %q, error %v, want \"hello\"", body, err)
		}
		k := <-last
		<-k.r.Context().Done()
		if a.name == ours { // net/http's server may panic or write into the next response.
			n, err := k.w.Write([]byte("injected"))
			if n != 0 || err == nil {
				t.Errorf("Write after the handler = %d, %v, want 0 and an error", n, err)
			}
			k.w.WriteHeader(500)
			k.w.Header().Set("A", "b")
			flush(k.w)
			if _, _, err := http.NewResponseController(k.w).Hijack(); err == nil {
				t.Error("Hijack after the handler: error = nil, want an error")
			}
		}
		if n, err := k.r.Body.Read(make([]byte, 10)); n != 0 || err == nil {
			t.Errorf("Read after the handler = %d, %v, want 0 and an error", n, err)
		}
		if got := readAnswers(t, hear(t, c, probe)); len(got) != 1 || strings.Contains(got[0], "injected") {
			t.Errorf("responses after the handler = %q, want one without \"injected\"", got)
		}
	})
}

func TestBothServersHijack(t *testing.T) {
	const answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
	take := func(t *testing.T, w http.ResponseWriter) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrHijacked) {
			t.Errorf("Write after Hijack: error = %v, want http.ErrHijacked", err)
		}
		if _, _, err := http.NewResponseController(w).Hijack(); err == nil {
			t.Error("second Hijack: error = nil, want an error")
		}
		if _, err := io.WriteString(conn, answer); err != nil {
			t.Error(err)
		}
		go func() { // Echoes each line after the handler has returned.
			defer conn.Close()
			for {
				line, err := rw.ReadString('\n')
				if err != nil {
					return
				}
				_, _ = rw.WriteString("<" + line)
				if rw.Flush() != nil || line == "last\n" {
					return
				}
			}
		}()
	}
	for _, c := range []struct {
		name   string
		before func(http.ResponseWriter, *http.Request)
		raw    string
		want   string
	}{
		{"at once", nil, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", answer},
		{"with bytes behind the head", nil, "GET / HTTP/1.1\r\nHost: x\r\n\r\none\ntwo\n", answer + "<one\n<two\n"},
		{"with 3 KB behind the head", nil, "GET / HTTP/1.1\r\nHost: x\r\n\r\n" + three, answer + "<" + strings.ReplaceAll(three[:len(three)-1], "\n", "\n<") + "\n"},
		{"with a request behind the head", nil, "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\n", answer + "<GET / HTTP/1.1\n"},
		{"after its body", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, post + "Content-Length: 3\r\n\r\nabcone\n", answer + "<one\n"},
		{"after a read deadline", func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
			_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
		}, "GET / HTTP/1.1\r\nHost: x\r\n\r\none\n", answer + "<one\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := func(w http.ResponseWriter, r *http.Request) {
				if c.before != nil {
					c.before(w, r)
				}
				take(t, w)
			}
			onBoth(t, rules{tls: true}, h, func(t *testing.T, a *serverUnderTest) {
				conn := a.dial(t)
				if _, err := io.WriteString(conn, c.raw); err != nil {
					t.Fatal(err)
				}
				b := make([]byte, len(c.want))
				if n, err := io.ReadFull(conn, b); err != nil || string(b) != c.want {
					t.Fatalf("read = %q, error %v, want %q", b[:n], err, c.want)
				}
				if rest := hear(t, conn, "last\n"); rest != "<last\n" {
					t.Errorf("read after another line = %q, want \"<last\\n\"", rest)
				}
			})
		})
	}
	t.Run("after writing", func(t *testing.T) {
		onBoth(t, rules{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			say(w, "hello")
			flush(w)
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, "hello")
			_ = conn.Close()
		}, func(t *testing.T, a *serverUnderTest) {
			if got := hear(t, a.dial(t), "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.HasSuffix(got, "\r\n\r\nhellohello") {
				t.Errorf("response = %q, want it to end with \"hellohello\"", got)
			}
		})
	})
}

// Bytes that arrived while the server waited for a disconnect are not lost. After Hijack only the handler reads the connection.
func TestBothServersHijackKeepsReceivedBytes(t *testing.T) {
	began, release, ended := make(chan struct{}), make(chan struct{}), make(chan struct{}, 2)
	onBoth(t, rules{listen: time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		<-release
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		if r.Context().Err() != nil {
			t.Error("request context ended before Hijack, want it active")
		}
		go func() {
			defer func() { ended <- struct{}{} }()
			defer conn.Close()
			for range 3 {
				line, err := rw.ReadString('\n')
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(conn, line)
				<-r.Context().Done() // The handler has returned, and the server has released the connection.
			}
		}()
	}, func(t *testing.T, a *serverUnderTest) {
		conn := a.pipe(t)
		write(t, conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		await(t, "the handler", began)
		write(t, conn, "o") // The disconnect check has read this byte.
		release <- struct{}{}
		if got := hear(t, conn, "ne\n", "two\n", "three\n"); got != "one\ntwo\nthree\n" {
			t.Errorf("echoed lines = %q, want \"one\\ntwo\\nthree\\n\"", got)
		}
		await(t, "whoever has the connection", ended)
	})
}

// Many clients send the complete request before they read. They must receive an early response.
func TestBothServersDeliverEarlyResponse(t *testing.T) {
	a := implementations[1].open(t, rules{tls: true}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		say(w, "too large")
	}))
	for _, raw := range []string{sized(300 << 10), sized(2 << 20), inChunks(1<<20, 1<<10), "GET / HTTP/1.1\r\n\r\n" + hundred + hundred + hundred} {
		for range 5 {
			conn := a.dial(t)
			write(t, conn, raw)
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(res.Body); err != nil || len(body) == 0 || !res.Close && !strings.Contains(raw, coded) { // The remaining length of a chunked body is unknown.
				t.Errorf("early response = %q, error %v, close %v, want a body and the end of the connection", body, err, res.Close)
			}
			_ = conn.Close()
		}
	}
}

// A goroutine that still reads an incomplete body after its handler has returned does not delay the response.
func TestBothServersBodyReaderDoesNotDelayResponse(t *testing.T) {
	left := make(chan error, 1)
	reading := make(chan struct{})
	a := implementations[1].open(t, rules{tls: true}, probed(func(w http.ResponseWriter, r *http.Request) {
		go func() {
			if _, err := io.ReadFull(r.Body, make([]byte, 5)); err != nil {
				t.Error(err)
			}
			close(reading)
			_, err := io.Copy(io.Discard, r.Body)
			left <- err
		}()
		<-reading
		say(w, "ignored")
	}))
	conn := a.dial(t)
	write(t, conn, post+"Content-Length: 10\r\n\r\nhello")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(res.Body); err != nil || string(body) != "ignored" {
		t.Errorf("body = %q, error %v, want \"ignored\"", body, err)
	}
	select {
	case err := <-left:
		if err == nil {
			t.Error("read of the body after the handler: error = nil, want an error")
		}
	case <-time.After(never):
		t.Error("goroutine still reads the body after the handler, want it to return")
	}
	if got := readAnswers(t, hear(t, conn, "world"+probe)); len(got) != 1 {
		t.Errorf("responses after the handler = %q, want 1", got)
	}
}

// The disconnect check has stopped when Hijack returns.
func TestBothServersHijackStopsDisconnectCheck(t *testing.T) {
	returned := make(chan struct{})
	a := implementations[1].open(t, rules{tls: true, listen: time.Millisecond}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		x := w.(*response).x
		for listening := false; !listening; runtime.Gosched() {
			x.conn.server.disconnects.mu.Lock()
			listening = x.watch.ended != nil
			x.conn.server.disconnects.mu.Unlock()
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		close(returned)
		line, err := rw.ReadString('\n')
		if err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(conn, line)
	}))
	conn := a.dial(t)
	write(t, conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	await(t, "the connection to be had", returned)
	if got := hear(t, conn, "one\n"); got != "one\n" {
		t.Errorf("echoed line = %q, want \"one\\n\"", got)
	}
}
