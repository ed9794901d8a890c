package httpengine_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"portico.dev/internal/httpengine"
	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/httpengine/httpmsg"
)

// headerBudget is a httpmsg.LargeHeaders.
type headerBudget struct {
	trusts bool
	limit  int64

	mu        sync.Mutex // guards the fields below
	used, max int64
	unused    chan struct{} // closed when used is 0; nil: nothing waits
}

func (b *headerBudget) Trusted(*tls.ConnectionState) bool { return b.trusts }

func (b *headerBudget) Take(_ net.Addr, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > b.limit {
		return false
	}
	b.used += n
	b.max = max(b.max, b.used)
	return true
}

func (b *headerBudget) Give(_ net.Addr, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used -= n; b.used == 0 && b.unused != nil {
		close(b.unused)
		b.unused = nil
	}
}

func (b *headerBudget) now() (used, peak int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used, b.max
}

// awaitReturned waits until all memory was returned.
func (b *headerBudget) awaitReturned(t *testing.T) {
	t.Helper()
	unused := make(chan struct{})
	b.mu.Lock()
	if b.used == 0 {
		b.mu.Unlock()
		return
	}
	b.unused = unused
	b.mu.Unlock()
	select {
	case <-unused:
	case <-time.After(time.Minute):
		used, _ := b.now()
		t.Fatalf("%d bytes are still granted, want 0", used)
	}
}

func withGroups(t *testing.T, s *serving, groups, length int) *http.Request {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, s.url("/"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range groups {
		r.Header.Add("X-Remote-Group", fmt.Sprintf("%0*d", length, i))
	}
	return r
}

func countGroups(w http.ResponseWriter, r *http.Request) {
	groups := r.Header["X-Remote-Group"]
	for i, g := range groups {
		if !strings.HasSuffix(g, fmt.Sprint(i)) {
			fmt.Fprintf(w, "group %d is %q", i, g)
			return
		}
	}
	fmt.Fprint(w, len(groups))
}

func TestTrustedClientsMaySendLargeHeaders(t *testing.T) {
	budget := &headerBudget{trusts: true}
	onBothServers(t, engine.ServerConfig{LargeHeaders: budget}, countGroups, func(t *testing.T, s *serving) {
		s.each(t, func(t *testing.T, c *http.Client) {
			for range 20 { // On one connection: this is not a flood.
				res, err := c.Do(withGroups(t, s, 5000, 40))
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(res.Body)
				res.Body.Close()
				if got := fmt.Sprint(res.StatusCode, " ", string(body)); got != "200 5000" {
					t.Fatalf("response = %s, want 200 5000", got)
				}
			}
			if _, peak := budget.now(); peak != 0 {
				t.Errorf("%d bytes were granted, want 0", peak)
			}
		})
	})
}

func TestLargeHeadersReserveMemory(t *testing.T) {
	budget := &headerBudget{limit: 32 << 20}
	onBothServers(t, engine.ServerConfig{LargeHeaders: budget}, countGroups, func(t *testing.T, s *serving) {
		s.each(t, func(t *testing.T, c *http.Client) {
			groups, length := 5000, 40
			if s.name == httpengine.Library { // It reads at most 64 KiB.
				groups, length = 1000, 4
			}
			res, err := c.Do(withGroups(t, s, groups, length))
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if got, want := fmt.Sprint(res.StatusCode, " ", string(body)), fmt.Sprint("200 ", groups); got != want {
				t.Errorf("response = %s, want %s", got, want)
			}
			if _, peak := budget.now(); peak == 0 {
				t.Errorf("%d bytes were granted, want more than 0", peak)
			}
			budget.awaitReturned(t)
		})
	})
}

func TestLargeHeadersWithoutMemoryAreRefusedWithStatus(t *testing.T) {
	budget := &headerBudget{}
	onBothServers(t, engine.ServerConfig{LargeHeaders: budget}, countGroups, func(t *testing.T, s *serving) {
		s.each(t, func(t *testing.T, c *http.Client) {
			for _, size := range [][2]int{{501, 4}, {1000, 4}, {100, 900}} { // number and bytes of the fields
				res, err := c.Do(withGroups(t, s, size[0], size[1]))
				if err != nil {
					if s.name == httpengine.Library && strings.Contains(err.Error(), "request header list larger") {
						continue
					}
					t.Fatal(err)
				}
				var status struct {
					Kind string
					Code int
				}
				err = json.NewDecoder(res.Body).Decode(&status)
				res.Body.Close()
				if res.StatusCode != 431 || err != nil || status.Kind != "Status" || status.Code != 431 {
					t.Errorf("%d fields of %d bytes: %s, body %+v (%v), want 431 with a Status", size[0], size[1], res.Status, status, err)
				}
			}
		})
	})
}

// A stream returns the memory of its header for every possible end.
func TestHeaderMemoryIsReturnedWhenStreamEnds(t *testing.T) {
	budget := &headerBudget{limit: 64 << 20}
	var groups []string
	for i := range 600 {
		groups = append(groups, "x-remote-group", fmt.Sprint(i))
	}
	onBothServers(t, engine.ServerConfig{LargeHeaders: budget, MaxConcurrentStreams: 3}, func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	}, func(t *testing.T, s *serving) {
		p := greet(t, s)
		for id := uint32(1); id < 20; id += 2 {
			p.head(id, true, groups...)
			if id > 4 {
				p.tell(p.WriteRSTStream(id, http2.ErrCodeCancel))
			}
		}
		p.tell(p.WritePing(false, [8]byte{1}))
		for acknowledged := false; !acknowledged; { // so that the headers have been read
			ping, ok := p.read().(*http2.PingFrame)
			acknowledged = ok && ping.IsAck()
		}
		_ = p.conn.Close()
		budget.awaitReturned(t)
		if s.name == httpengine.Portico {
			if _, peak := budget.now(); peak == 0 {
				t.Errorf("%d bytes were granted, want more than 0", peak)
			}
		}
	})
}

func TestUnauthenticatedClientMaySendFewLargeHeaders(t *testing.T) {
	budget := &headerBudget{limit: 64 << 20}
	var groups []string
	for i := range 600 {
		groups = append(groups, "x-remote-group", fmt.Sprint(i))
	}
	onBothServers(t, engine.ServerConfig{LargeHeaders: budget}, countGroups, func(t *testing.T, s *serving) {
		if s.name == httpengine.Library {
			t.Skip("the library does not count floods of headers")
		}
		p := greet(t, s)
		answered := 0
		for id := uint32(1); id < 2000; id += 2 {
			p.head(id, true, groups...)
			if p.status(id) != "200" {
				break
			}
			answered++
		}
		if answered < 90 || answered > 500 {
			t.Errorf("%d requests were answered before the connection ended, want about 100", answered)
		}
	})
}

var _ httpmsg.LargeHeaders = (*headerBudget)(nil)
