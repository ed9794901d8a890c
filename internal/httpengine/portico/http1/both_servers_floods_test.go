package http1

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Ten thousand requests at once from a client that reads only after it has sent all of them.
func TestBothServersServeTenThousandPipelinedRequests(t *testing.T) {
	const many = 10_000
	a := implementations[1].open(t, rules{tls: true}, probed(func(w http.ResponseWriter, r *http.Request) { say(w, r.URL.Path) }))
	conn := a.dial(t)
	var all strings.Builder
	for i := range many {
		fmt.Fprintf(&all, "GET /%d HTTP/1.1\r\nHost: x\r\n\r\n", i)
	}
	var sending sync.WaitGroup
	sending.Go(func() { _, _ = io.WriteString(conn, all.String()+probe) })
	defer sending.Wait()
	b := bufio.NewReader(conn)
	for i := range many {
		res, err := http.ReadResponse(b, nil)
		if err != nil {
			t.Fatal(i, err)
		}
		if body, err := io.ReadAll(res.Body); err != nil || string(body) != fmt.Sprint("/", i) {
			t.Fatalf("response %d = %q, error %v, want body /%d", i, body, err, i)
		}
	}
}

func TestBothServersAcceptTinyChunks(t *testing.T) {
	const many = 100_000
	onBoth(t, rules{tls: true}, probed(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		say(w, fmt.Sprint(n, " ", err))
	}), func(t *testing.T, a *serverUnderTest) {
		if got := verdict(t, a, inChunks(many, 1)); got != "100000 <nil>, probe" {
			t.Errorf("verdict of tiny chunks = %s, want \"100000 <nil>, probe\"", got)
		}
		// The number of chunk extension bytes is limited.
		if got := verdict(t, a, chunky+strings.Repeat("1;"+strings.Repeat("x", 30)+"\r\nx\r\n", many)+"0\r\n\r\n"); !strings.Contains(got, "chunked encoding") && !strings.Contains(got, errExcess.Error()) {
			t.Errorf("verdict of large chunk extensions = %s, want an error of the chunked encoding", got)
		}
	})
}

func TestBothServersDeliverManySmallWrites(t *testing.T) {
	const many = 3000
	onBoth(t, rules{tls: true}, probed(func(w http.ResponseWriter, _ *http.Request) {
		for range many {
			say(w, "x")
			flush(w)
		}
	}), func(t *testing.T, a *serverUnderTest) {
		if got := verdict(t, a, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); got != strings.Repeat("x", many)+", probe" {
			t.Errorf("verdict of many small writes = %s, want %d bytes and probe", brief(got), many)
		}
	})
}

// Three hundred clients at once. Each must receive its own responses, and the server must release their memory.
func TestBothServersServeThreeHundredClients(t *testing.T) {
	const clients, each = 300, 6
	h := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if len(body) > 200 {
			flush(w)
		}
		_, _ = w.Write(body)
	}
	onBoth(t, rules{}, probed(h), func(t *testing.T, a *serverUnderTest) {
		memory := func() (all runtime.MemStats) {
			runtime.GC()
			runtime.ReadMemStats(&all)
			return all
		}
		before := memory()
		var all sync.WaitGroup
		for i := range clients {
			conn := a.dial(t)
			all.Go(func() {
				var raw strings.Builder
				var want []string
				for j := range each {
					body := strings.Repeat(fmt.Sprintf("<%d %d>", i, j), 1+j*j*10)
					want = append(want, body)
					if j%2 == 0 {
						fmt.Fprintf(&raw, "%s%s\r\n%x\r\n%s\r\n0\r\n\r\n", post, coded, len(body), body)
					} else {
						fmt.Fprintf(&raw, "%sContent-Length: %d\r\n\r\n%s", post, len(body), body)
					}
				}
				if got := verdict(t, a, raw.String()); got != strings.Join(want, ", ")+", probe" {
					t.Errorf("client %d: verdict = %s, want its %d bodies and probe", i, brief(got), len(want))
				}
				_ = conn.Close()
			})
		}
		all.Wait()
		// Connections end shortly after their clients have closed them.
		for deadline := time.Now().Add(never); ; <-time.After(10 * time.Millisecond) {
			after := memory()
			if after.HeapInuse <= before.HeapInuse+8<<20 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("heap in use = %d KiB, %d KiB before, want at most 8192 KiB more", after.HeapInuse>>10, before.HeapInuse>>10)
			}
		}
	})
}
