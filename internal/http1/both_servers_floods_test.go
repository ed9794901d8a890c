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

// Ten thousand requests at once, of a client that reads only when it has sent all.
func TestBothServersTenThousandPipelined(t *testing.T) {
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
			t.Fatalf("answer %d is %q, %v", i, body, err)
		}
	}
}

func TestBothServersTinyChunks(t *testing.T) {
	const many = 100_000
	onBoth(t, rules{tls: true}, probed(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		say(w, fmt.Sprint(n, " ", err))
	}), func(t *testing.T, a *serverUnderTest) {
		if got := verdict(t, a, inChunks(many, 1)); got != "100000 <nil>, probe" {
			t.Error(got)
		}
		// With something said about each byte there is an end to never.
		if got := verdict(t, a, chunky+strings.Repeat("1;"+strings.Repeat("x", 30)+"\r\nx\r\n", many)+"0\r\n\r\n"); !strings.Contains(got, "chunked encoding") && !strings.Contains(got, errExcess.Error()) {
			t.Error(got)
		}
	})
}

func TestBothServersManySmallWrites(t *testing.T) {
	const many = 3000
	onBoth(t, rules{tls: true}, probed(func(w http.ResponseWriter, _ *http.Request) {
		for range many {
			say(w, "x")
			flush(w)
		}
	}), func(t *testing.T, a *serverUnderTest) {
		if got := verdict(t, a, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); got != strings.Repeat("x", many)+", probe" {
			t.Error(brief(got))
		}
	})
}

// Three hundred clients at once: what each gets is its own, and nothing is left of them.
func TestBothServersThreeHundredClients(t *testing.T) {
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
					t.Errorf("client %d: %s", i, brief(got))
				}
				_ = conn.Close()
			})
		}
		all.Wait()
		// Connections end a little after their clients have left.
		for deadline := time.Now().Add(never); ; <-time.After(10 * time.Millisecond) {
			after := memory()
			if after.HeapInuse <= before.HeapInuse+8<<20 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d KiB in use, before %d", after.HeapInuse>>10, before.HeapInuse>>10)
			}
		}
	})
}
