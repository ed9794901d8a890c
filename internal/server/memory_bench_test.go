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
	"portico.dev/internal/sharedwatch"
	"portico.dev/internal/transport"
)

// BenchmarkIdleWatches opens watches over HTTP/2 and through the whole chain, which say nothing, and reports how much memory each keeps. Where
// they are not shared, that of the extension server, which is in the same process, is counted too.
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
	l.openWatches(b, 1) // what is shared is not counted
	var before, after runtime.MemStats
	settle(&before)
	const each = 50 // on a connection, as on the page about shared reads
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

// settle lets stacks shrink: each collection of garbage halves them at most.
func settle(m *runtime.MemStats) {
	for range 4 {
		runtime.GC()
	}
	runtime.ReadMemStats(m)
}

// openWatches opens n watches on a connection, and returns when the responses have begun. The client is so small that its memory hardly counts.
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
				b.Fatal(h.Fields)
			}
			n--
		}
	}
}
