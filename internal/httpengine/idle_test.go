package httpengine_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"portico.dev/internal/httpengine"
	"portico.dev/internal/httpengine/engine"
)

// A40: the memory of an idle connection is bounded and at most that of net/http, after small and after large headers. The client's
// half of TLS is included. After large records crypto/tls keeps 20 KiB for reading.
func TestA40IdleConnectionMemoryIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const connections, bound = 60, 64 << 10
	large := strings.Repeat("x", 1000)
	for name, test := range map[string]struct {
		proto string
		heads int // fields of 1,000 bytes
		index bool
	}{
		"HTTP/1.1":                     {proto: "http/1.1"},
		"HTTP/1.1 after large headers": {proto: "http/1.1", heads: 55},
		"HTTP/2":                       {proto: "h2"},
		"HTTP/2 after large headers":   {proto: "h2", heads: 55},
		"HTTP/2 after large headers, put into tables": {proto: "h2", heads: 55, index: true},
	} {
		t.Run(name, func(t *testing.T) {
			kept := map[httpengine.Name]int64{}
			for _, n := range httpengine.Names() {
				t.Run(string(n), func(t *testing.T) {
					s := serve(t, n, engine.ServerConfig{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
					request := func(int) []byte {
						return []byte("GET / HTTP/1.1\r\nHost: example.com\r\n" + strings.Repeat("x: "+large+"\r\n", test.heads) + "\r\n")
					}
					if test.proto == "h2" {
						request = func(int) []byte { return idleHTTP2(t, test.heads, large, test.index) }
					}
					open := func(count int) {
						for i := range count {
							c := s.dial(t, test.proto)
							if _, err := c.Write(request(i)); err != nil {
								t.Fatal(err)
							}
							if test.proto == "h2" {
								f := http2.NewFramer(io.Discard, c)
								for answered := false; !answered; {
									frame, err := f.ReadFrame()
									if err != nil {
										t.Fatal(err)
									}
									_, answered = frame.(*http2.HeadersFrame)
								}
								continue
							}
							answer, err := http.ReadResponse(bufio.NewReader(c), nil)
							if err != nil || answer.StatusCode != http.StatusNoContent {
								t.Fatalf("response = %v, error %v, want 204", answer, err)
							}
						}
					}
					open(10) // memory that all connections share
					before := inUse()
					open(connections)
					kept[n] = (inUse() - before) / connections
				})
			}
			ours, theirs := kept[httpengine.Portico], kept[httpengine.Library]
			t.Logf("%d bytes for each connection, %d with the library", ours, theirs)
			if ours > bound {
				t.Errorf("memory of an idle connection = %d bytes, want at most %d", ours, bound)
			}
			if ours > theirs+theirs/4+4<<10 { // tolerance of the measurement
				t.Errorf("memory of an idle connection = %d bytes, want about %d as with net/http", ours, theirs)
			}
		})
	}
}

// idleHTTP2 returns the start of a connection, with a request whose fields are indexed if index is set.
func idleHTTP2(t *testing.T, heads int, value string, index bool) []byte {
	var wire, block bytes.Buffer
	e := hpack.NewEncoder(&block)
	fields := [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "example.com"}, {":path", "/"}}
	for range heads {
		fields = append(fields, [2]string{"x", value})
	}
	for i, f := range fields {
		if i > 4 && index {
			f[1] = f[1][:len(f[1])-i] // Otherwise it would be a reference.
		}
		if err := e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: !index}); err != nil {
			t.Fatal(err)
		}
	}
	wire.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&wire, nil)
	rest := block.Bytes()
	next := func() []byte {
		part := rest[:min(len(rest), 16<<10)]
		rest = rest[len(part):]
		return part
	}
	err := f.WriteSettings()
	first := next()
	if err == nil {
		err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: first, EndHeaders: len(rest) == 0, EndStream: true})
	}
	for err == nil && len(rest) > 0 {
		part := next()
		err = f.WriteContinuation(1, len(rest) == 0, part)
	}
	if err != nil {
		t.Fatal(err)
	}
	return wire.Bytes()
}

// inUse returns the memory of the heap and the stacks. It collects garbage repeatedly: pools keep items for one collection, and each
// collection halves a stack.
func inUse() int64 {
	for range 4 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
