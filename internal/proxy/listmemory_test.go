package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/filters"
	"portico.dev/internal/request"
	"portico.dev/internal/transport"
)

// listEnv is a testEnv with a front door that chooses the destination by a header.
type listEnv struct {
	*testEnv
	slow, healthy, other Destination
}

const destinationHeader = "X-Test-Destination"

func newListEnv(t *testing.T, memory ListMemory, slow, healthy http.HandlerFunc) *listEnv {
	w := &listEnv{testEnv: newTestEnv(t, Config{Lists: memory}, transport.Options{})}
	destination := func(name string, h http.Handler) Destination {
		b := w.register(transport.Spec{Name: "kube-system/" + name + ":443", ServerName: serviceName, CABundle: w.ca.PEM()}, w.testEnv.serve(h))
		return Destination{Backend: b, APIService: "v1." + name + ".example.com"}
	}
	w.slow, w.healthy, w.other = destination("slow", slow), destination("healthy", healthy), destination("other", healthy)
	w.front = w.testEnv.serve(http.HandlerFunc(w.serve))
	return w
}

func (w *listEnv) serve(rw http.ResponseWriter, r *http.Request) {
	info, err := request.NewResolver().Info(r)
	if err != nil {
		w.t.Error(err)
		return
	}
	r = r.WithContext(apirequest.WithUser(apirequest.WithRequestInfo(r.Context(), info), alice))
	kind, name, _ := strings.Cut(r.Header.Get(destinationHeader), " ")
	d := w.healthy
	if name == "slow" {
		d = w.slow
	}
	switch kind {
	case "merged":
		w.proxy.ServeMerged(rw, filters.RequestOf(r), Merged{
			Parts: []MergedPart{{Name: "one", Destination: d}, {Name: "two", Destination: w.other}},
			Keep:  func(int, string, string) bool { return true },
		})
	case "table":
		d.ConvertTable = true
		w.proxy.Serve(rw, filters.RequestOf(r), d)
	case "events":
		d.InitialEvents = MakeInitialEvents
		w.proxy.Serve(rw, filters.RequestOf(r), d)
	}
}

// list sends a request and returns the code, which is 0 if there was no response, and the header.
func (w *listEnv) list(ctx context.Context, destination string) (int, http.Header) {
	path := "/apis/metrics.example.com/v1/nodes"
	if strings.HasPrefix(destination, "events") {
		path += "?" + streaming
	}
	r := w.request(http.MethodGet, path, nil).WithContext(ctx)
	r.Header.Set(destinationHeader, destination)
	if strings.HasPrefix(destination, "table") {
		r.Header.Set("Accept", asTable)
	}
	resp, err := w.client().Do(r)
	if err != nil {
		return 0, nil
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, nil
	}
	return resp.StatusCode, resp.Header
}

// computedNodes returns a list of about the given size.
func computedNodes(size int) string {
	return `{"kind":"NodeList","apiVersion":"metrics.example.com/v1","metadata":{},"items":[{"metadata":{"name":"a"},"x":"` + strings.Repeat("x", size) + `"}]}`
}

// writeJSON writes a part of a JSON response.
func writeJSON(rw http.ResponseWriter, part string) {
	rw.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(rw, part)
	rw.(http.Flusher).Flush()
}

// Eight lists of a slow backend once used all slots for lists of the process, so that no list of another backend was converted
// or merged.
func TestA53SlowBackendDoesNotDelayOtherLists(t *testing.T) {
	const slowLists = 8
	size := 1 << 20
	if testing.Short() { // the race detector takes a minute for it
		size = 128 << 10
	}
	list := computedNodes(size)
	begun := list[:size/8*7]
	healthy := func(rw http.ResponseWriter, _ *http.Request) { writeJSON(rw, list) }
	for _, test := range []struct {
		name, kind string
		begin      string // prefix of the body that the slow backend sends; empty: it sends no header
	}{
		{"a Table without a response header", "table", ""},
		{"a merged list without a response header", "merged", ""},
		{"initial events without a response header", "events", ""},
		{"a Table in the middle of the body", "table", begun},
		{"a merged list in the middle of the body", "merged", begun},
		{"initial events in the middle of the body", "events", begun},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			var arrived atomic.Int32
			w := newListEnv(t, ListMemory{Shares: new(transport.Shares), Limit: 64 << 20}, func(rw http.ResponseWriter, r *http.Request) {
				arrived.Add(1)
				if test.begin != "" {
					writeJSON(rw, test.begin)
				}
				<-r.Context().Done()
			}, healthy)
			var clients sync.WaitGroup
			defer clients.Wait()
			defer stop()
			for range slowLists {
				clients.Go(func() { w.list(ctx, test.kind+" slow") })
			}
			eventually(t, time.Minute, "the slow backend has all requests", func() bool { return arrived.Load() == slowLists })
			for _, kind := range []string{"table", "merged"} {
				if code, _ := w.list(t.Context(), kind+" healthy"); code != http.StatusOK {
					t.Errorf("%s of healthy backends: code = %d, want 200", kind, code)
				}
			}
		})
	}
}

func TestA54ListIsChargedWhileItIsRead(t *testing.T) {
	const limit, lists = 16 << 20, 12
	shares := new(transport.Shares)
	gate := make(chan struct{})
	list := computedNodes(1 << 20)
	var peak atomic.Int64
	backend := func(rw http.ResponseWriter, r *http.Request) {
		writeJSON(rw, list[:1<<20])
		select {
		case <-gate:
		case <-r.Context().Done():
			return
		}
		peak.Store(max(peak.Load(), shares.Total()))
		writeJSON(rw, list[1<<20:])
	}
	for _, kind := range []string{"merged", "table", "events"} {
		t.Run(kind, func(t *testing.T) {
			gate = make(chan struct{})
			peak.Store(0)
			w := newListEnv(t, ListMemory{Shares: shares, Limit: limit}, backend, backend)
			w.proxy.lists.wait = time.Millisecond
			var clients sync.WaitGroup
			var refused atomic.Int32
			for range lists {
				clients.Go(func() {
					switch code, header := w.list(t.Context(), kind+" healthy"); {
					case code == http.StatusServiceUnavailable && header.Get("Retry-After") != "":
						refused.Add(1)
					case code == http.StatusServiceUnavailable:
						t.Error("code = 503 without Retry-After, want Retry-After")
					}
				})
			}
			eventually(t, time.Minute, "a list is refused for lack of memory", func() bool { return refused.Load() > 0 })
			if total := shares.Total(); total > limit {
				t.Errorf("lists are charged %d bytes, want at most %d", total, limit)
			}
			close(gate)
			clients.Wait()
			if peak.Load() > limit {
				t.Errorf("lists were charged %d bytes, want at most %d", peak.Load(), limit)
			}
			eventually(t, time.Minute, "everything is given back", func() bool { return shares.Total() == 0 })
			if code, _ := w.list(t.Context(), kind+" healthy"); kind != "events" && code != http.StatusOK {
				t.Errorf("list after the other lists ended: code = %d, want 200", code)
			}
		})
	}
}

func testCharge(p *Proxy, name, backend string, groups ...string) *listCharge {
	return p.newListCharge(&user.DefaultInfo{Name: name, Groups: groups}, backend)
}

// readList reads a list of the given size, and returns the error.
func (c *listCharge) readList(ctx context.Context, size int) error {
	_, err := io.ReadAll(c.reader(ctx, bytes.NewReader(make([]byte, size))))
	return err
}

func TestA54ListIsChargedToUserAndBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Lists: ListMemory{Shares: new(transport.Shares), Limit: 16 << 20}})
		ctx := t.Context()
		var held []*listCharge
		for range 100 { // bob reads no byte of the response
			c := testCharge(p, "bob", "a")
			err := c.readList(ctx, 1<<20)
			if err == nil {
				err = c.handOver(ctx, 1<<20)
			}
			if err != nil {
				c.release()
				break
			}
			held = append(held, c)
		}
		if len(held) == 0 || len(held) > 13 {
			t.Errorf("bob holds %d MiB, want at most four fifths of 16", len(held))
		}
		if err := testCharge(p, "alice", "a").readList(ctx, 256<<10); err != nil {
			t.Errorf("list of the same backend for another user failed: %v, want no error", err)
		}
		p.lists.Shares.Take("backend\x00a", p.lists.Limit-p.lists.Shares.Total(), unlimitedMemory)
		begin := time.Now()
		if err := testCharge(p, "carol", "b").readList(ctx, 1<<20); !apierrors.IsServiceUnavailable(err) || time.Since(begin) != maxListWait {
			t.Errorf("list without memory: error = %v after %s, want a 503 after %s", err, time.Since(begin), maxListWait)
		}
		if err := testCharge(p, "carol", "b").readList(ctx, unchargedList/2); err != nil {
			t.Errorf("small list without memory failed: %v, want no error", err)
		}
		admin := testCharge(p, "admin", "b", user.SystemPrivilegedGroup)
		if err := admin.readList(ctx, 10<<20); err != nil {
			t.Errorf("list for an administrator without memory failed: %v, want no error", err)
		}
		admin.release()
		gone, leave := context.WithCancel(ctx)
		leave()
		if err := testCharge(p, "carol", "b").readList(gone, 1<<20); !errors.Is(err, context.Canceled) {
			t.Errorf("list of a client that left: error = %v, want %v", err, context.Canceled)
		}
	})
}

func TestA54ListWaitsForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Lists: ListMemory{Shares: new(transport.Shares), Limit: 16 << 20}})
		first := testCharge(p, "alice", "a")
		if err := first.readList(t.Context(), 2<<20); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(maxListWait-time.Second, first.release)
		if err := testCharge(p, "bob", "a").readList(t.Context(), 2<<20); err != nil {
			t.Errorf("list that gets memory in time failed: %v, want no error", err)
		}
	})
}

func TestListSizeIsCappedByMemoryLimit(t *testing.T) {
	for _, limit := range []int64{1 << 20, 32 << 20, defaultListMemory} {
		p := New(Config{Lists: ListMemory{Shares: new(transport.Shares), Limit: limit}})
		p.lists.wait = time.Millisecond
		most := p.lists.maxList()
		if most <= 0 || most > maxConverted {
			t.Errorf("limit %d: maxList() = %d bytes, want 1 to %d", limit, most, maxConverted)
		}
		if err := testCharge(p, "alice", "a").readList(t.Context(), int(most)); err != nil {
			t.Errorf("limit %d: list of %d bytes failed: %v, want no error", limit, most, err)
		}
		var large *responseError
		if err := testCharge(p, "bob", "b").readList(t.Context(), int(most)+1); limit == defaultListMemory && !errors.As(err, &large) {
			t.Errorf("limit %d: list of %d bytes: error = %v, want TooLargeToConvert", limit, most+1, err)
		}
	}
}

// A watch without memory for its next event ends as if the server had ended it: clients continue from their last event.
func TestA54WatchWithoutMemoryEndsBetweenEvents(t *testing.T) {
	event := func(size int) string {
		return `{"type":"ADDED","object":{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"},"spec":"` + strings.Repeat("x", size) + `"}}` + "\n"
	}
	w := newTestEnv(t, Config{Lists: ListMemory{Shares: new(transport.Shares), Limit: 16 << 20}}, transport.Options{})
	w.proxy.lists.wait = time.Millisecond
	plainBackend(w, event(1)+event(1<<20)+event(1))
	w.configure(func(t *Destination) { t.ConvertMetadata = true })
	if a := w.accept(watching, asOne); a.err != nil || strings.Count(a.body, "\n") != 3 {
		t.Errorf("with memory: %d events, error %v, want 3 and no error", strings.Count(a.body, "\n"), a.err)
	}
	if total := w.proxy.lists.Shares.Total(); total != 0 {
		t.Errorf("%d bytes are charged after the watch, want 0", total)
	}
	w.proxy.lists.Shares.Take("others", 16<<20, unlimitedMemory)
	if a := w.accept(watching, asOne); a.err != nil || strings.Count(a.body, "\n") != 1 {
		t.Errorf("without memory: %d events, error %v, want 1 and no error", strings.Count(a.body, "\n"), a.err)
	}

	frame := append(binary.BigEndian.AppendUint32(nil, 1<<20), make([]byte, 1<<20)...)
	watch := &protobufWatch{source: bytes.NewReader(frame), charge: testCharge(w.proxy, "alice", "a"), ctx: t.Context()}
	if _, err := io.ReadAll(watch); err != nil {
		t.Errorf("event in protobuf without memory: error = %v, want the end of the watch", err)
	}
}

// An event that begins and does not end holds memory of its backend's share. A watch can be silent between two events.
func TestA54IncompleteEventDoesNotKeepMemory(t *testing.T) {
	w := newTestEnv(t, Config{BodyIdle: 50 * time.Millisecond}, transport.Options{})
	w.backend(w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		writeJSON(rw, `{"type":"ADDED","object":{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"},"spec":"`+strings.Repeat("x", 4*unchargedList))
		<-r.Context().Done()
	})))
	w.configure(func(t *Destination) { t.ConvertMetadata = true })
	if a := w.accept(watching, asOne); a.err == nil {
		t.Errorf("the watch ended without an error after %q, want an error", a.body)
	}
	eventually(t, time.Minute, "the memory is given back", func() bool { return w.proxy.lists.Shares.Total() == 0 })
}
