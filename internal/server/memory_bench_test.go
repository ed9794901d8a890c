package server

import (
	"bytes"
	"net/http"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"portico.dev/internal/dispatch/dispatchtest"
	"portico.dev/internal/routes/sharedwatch"
	"portico.dev/internal/transport"
)

// BenchmarkIdleWatches opens idle watches over HTTP/2 through the complete chain, and reports the memory of each. For watches that
// are not shared, the value includes the memory of the extension server, which runs in the same process.
//
//	go test ./internal/server -run '^$' -bench IdleWatches -benchtime 2000x
func BenchmarkIdleWatches(b *testing.B) {
	b.Run("shared", func(b *testing.B) { benchIdleWatches(b, true) })
	b.Run("each sent", func(b *testing.B) { benchIdleWatches(b, false) })
}

func benchIdleWatches(b *testing.B, shared bool) {
	set := transport.New(transport.Options{})
	b.Cleanup(set.Close)
	router := routerOf(dispatchtest.Table(b, set, sharingWatches, map[string]http.Handler{"first": &watchedBackend{}}))
	if shared {
		router.SharedWatches = runSharedWatches(b, sharedwatch.Config{})
	}
	bench := newBench()
	bench.useFairness(b, 600, nil)
	l := bench.listen(b, time.Second, func(s *Server) { s.c.Handler = benchChain(b, bench.config.Fairness, true, true, router.build()) })
	l.openWatches(b, 1) // the memory shared by all watches is not counted
	var before, after runtime.MemStats
	settle(&before)
	const each = 50 // per connection, as on the page about shared reads
	for opened := 0; opened < b.N; opened += each {
		l.openWatches(b, min(each, b.N-opened))
	}
	settle(&after)
	stack := float64(after.StackInuse-before.StackInuse) / float64(b.N)
	heap := float64(after.HeapAlloc-before.HeapAlloc) / float64(b.N)
	b.ReportMetric(stack, "stack-B/watch")
	b.ReportMetric(heap, "heap-B/watch")
	b.ReportMetric((stack+heap)/1024, "KiB/watch")
}

// settle waits until stacks have shrunk: each garbage collection halves them at most.
func settle(m *runtime.MemStats) {
	for range 4 {
		runtime.GC()
	}
	runtime.ReadMemStats(m)
}

// openWatches opens n watches on one connection, and returns after the responses have begun. The client uses very little memory.
func (l *listening) openWatches(b *testing.B, n int) {
	b.Helper()
	a := l.attack(b)
	for i := range n {
		a.block.Reset()
		for _, f := range []hpack.HeaderField{
			{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "a"},
			{Name: ":path", Value: "/apis/example.com/v1/namespaces/ns1/things?watch=true&resourceVersion=5"},
			{Name: "authorization", Value: "Bearer bench-token"}, {Name: "accept", Value: "application/json"},
			{Name: "user-agent", Value: "kubectl/v1.37.2 (linux/amd64) kubernetes/abcdef0"},
		} {
			_ = a.encoder.WriteField(f) // into memory
		}
		if err := a.WriteHeaders(http2.HeadersFrameParam{
			StreamID: uint32(2*i + 1), BlockFragment: bytes.Clone(a.block.Bytes()), EndStream: true, EndHeaders: true,
		}); err != nil {
			b.Fatal(err)
		}
	}
	for n > 0 {
		f, err := a.ReadFrame()
		if err != nil {
			b.Fatal(err)
		}
		if h, ok := f.(*http2.MetaHeadersFrame); ok {
			if h.PseudoValue("status") != "200" {
				b.Fatalf("response to a watch = %v, want status 200", h.Fields)
			}
			n--
		}
	}
}
