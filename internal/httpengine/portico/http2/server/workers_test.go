package server

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// Idle workers are reused, the most recent one first. Their number is limited, and they end after a timeout.
func TestIdleWorkersAreReusedAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &workerPool{maxIdle: 3}
		begun, finish := make(chan *worker, 10), make(chan struct{})
		var alive atomic.Int64
		for range 5 {
			w := &worker{pool: p, work: make(chan *stream, 1)}
			alive.Add(1)
			go func() {
				defer alive.Add(-1)
				begun <- w
				<-finish
				if p.park(w) {
					<-w.work
				}
			}()
		}
		synctest.Wait()
		close(finish)
		synctest.Wait()
		if n := alive.Load(); n != 3 {
			t.Errorf("%d workers are idle, want 3", n)
		}
		<-time.After(workerIdleTime / 2)
		p.mu.Lock() // Timers take this lock too.
		last := p.idle[2]
		p.mu.Unlock()
		p.run(&stream{})
		synctest.Wait()
		p.mu.Lock()
		if len(p.idle) != 2 || p.idle[0] == last || p.idle[1] == last {
			t.Error("idle workers include the most recent one after a request, want it in use")
		}
		p.mu.Unlock()
		<-time.After(2 * workerIdleTime)
		synctest.Wait()
		if n := alive.Load(); n != 0 {
			t.Errorf("%d workers are idle after the timeout, want 0", n)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.timer != nil {
			t.Error("timer is set without idle workers, want none")
		}
	})
}

// A response contains no data of the previous request on the same worker. Late writes are refused.
func TestWorkerKeepsNoDataOfPreviousRequest(t *testing.T) {
	late := make(chan http.ResponseWriter, 1)
	s := start(t, Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/abort":
			w.Header().Set("Secret", "1")
			_, _ = io.WriteString(w, "secret")
			panic(http.ErrAbortHandler)
		case "/late":
			late <- w
		default:
			fmt.Fprint(w, r.URL.Path)
		}
	})})
	c := s.client(t)
	for i := range 20 {
		if res, err := c.Get("https://" + s.address + "/abort"); err == nil {
			t.Fatalf("aborted request = %s, want an error", res.Status)
		}
		path := fmt.Sprint("/", i)
		res, err := c.Get("https://" + s.address + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if string(body) != path || res.Header.Get("Secret") != "" {
			t.Fatalf("response to %s = %q, header %v, want the path and no header Secret", path, body, res.Header)
		}
	}
	res, err := c.Get("https://" + s.address + "/late")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	w := <-late
	w.WriteHeader(500)
	// The client may receive the response shortly before its worker is free.
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
		_, err := w.Write(nil)
		if err == errHandlerReturned {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("late empty Write: error = %v, want errHandlerReturned", err)
		}
	}
	if _, err := w.Write([]byte("x")); err != errHandlerReturned {
		t.Errorf("late Write: error = %v, want errHandlerReturned", err)
	}
	if err := http.NewResponseController(w).Flush(); err != errHandlerReturned {
		t.Errorf("late Flush: error = %v, want errHandlerReturned", err)
	}
}

func TestStreamFitsItsSizeClass(t *testing.T) {
	t.Log(unsafe.Sizeof(stream{}), unsafe.Sizeof(response{}), unsafe.Sizeof(body{}), unsafe.Sizeof(http.Request{}), unsafe.Sizeof(conn{}))
	if n := unsafe.Sizeof(stream{}); n > 1152 {
		t.Errorf("size of a stream = %d bytes, want at most 1152", n)
	}
}
