package http2_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// block is a header block in which every string is a literal that no table keeps, but for kept, which goes into the table.
func (p *peer) literals(kept [2]string, fields ...string) []byte {
	p.block.Reset()
	for i := 0; i+1 < len(fields); i += 2 {
		_ = p.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1], Sensitive: true})
	}
	_ = p.encoder.WriteField(hpack.HeaderField{Name: kept[0], Value: kept[1]})
	return append([]byte(nil), p.block.Bytes()...)
}

// write sends a header block of any length.
func (p *peer) write(id uint32, end bool, block []byte) {
	const most = 16 << 10
	first := block[:min(len(block), most)]
	block = block[len(first):]
	p.tell(p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndStream: end, EndHeaders: len(block) == 0}))
	for len(block) > 0 {
		part := block[:min(len(block), most)]
		block = block[len(part):]
		p.tell(p.WriteContinuation(id, len(block) == 0, part))
	}
}

// A38: one header that is too large costs its stream, also when it is a single one, and nothing else of a connection that a proxy
// before us shares among its clients: those that are served go on, and what follows is read by the table that it left.
func TestA38OneLargeHeaderCostsItsStreamOnly(t *testing.T) {
	release := make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/other" {
			<-release
		}
		_, _ = io.WriteString(w, r.Header.Get("X-Kept"))
	})
	s := sides[1].start(t, options{}, h)
	let := sync.OnceFunc(func() { close(release) })
	t.Cleanup(let)
	p := s.greet(t)
	other := p.get("/other")
	long := func(n int) string { return strings.Repeat("Z", n) } // eight bits in Huffman's code
	for name, fields := range map[string][]string{
		"a field of 70 KB":           request("GET", "/good", "x-long", long(70_000)),
		"a field of 100 KB":          request("GET", "/good", "x-long", long(100_000)),
		"a field whose name is long": request("GET", "/good", long(70_000), "x"),
		"a path":                     request("GET", "/"+long(70_000)),
		"an authority":               {":method", "GET", ":scheme", "https", ":path", "/good", ":authority", long(70_000)},
		"a method":                   {":method", long(70_000), ":scheme", "https", ":path", "/good", ":authority", "example.com"},
	} {
		id := p.id()
		kept := strings.ReplaceAll(name, " ", "-")
		p.write(id, true, p.literals([2]string{"x-kept", kept}, fields...))
		if a := p.await(id); a.status() != "431" {
			t.Fatalf("%s: %+v", name, a)
		}
		block := p.encode(request("GET", "/good", "x-kept", kept)...)
		if strings.Contains(string(block), kept) {
			t.Fatalf("%s: the table is not used", name)
		}
		id = p.id()
		p.write(id, true, block)
		if a := p.await(id); a.status() != "200" || string(a.body) != kept {
			t.Fatalf("after %s: %+v", name, a)
		}
	}
	let()
	if a := p.await(other); a.status() != "200" {
		t.Errorf("the other request on the connection: %+v", a)
	}
	p = s.greet(t)
	id := p.id()
	p.write(id, true, p.literals([2]string{"x-kept", "x"}, request("GET", "/good", "x-long", long(140_000))...))
	if a := p.await(id); a.goneAway != "ENHANCE_YOUR_CALM" {
		t.Errorf("twice as large as allowed, and more: %+v", a)
	}
}

// A40: references of a byte each, on every stream, with windows that are shut (CVE-2026-49975, CVE-2026-47774): what a connection can
// make us hold is its streams times 500 fields. Crumbs of cookies are fields.
func TestA40ReferencesWhileWindowsAreShut(t *testing.T) {
	const streams = 100
	s := sides[1].start(t, options{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 64))
		_ = http.NewResponseController(w).Flush() // waits for the window
	}))
	before := heap()
	p := s.greet(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	first := p.encode(request("GET", "/", "cookie", "a")...)
	p.write(p.id(), true, first)
	for range streams - 1 {
		block := append(p.encode(request("GET", "/")...), bytes.Repeat([]byte{0xbe}, 490)...)
		p.write(p.id(), true, block)
	}
	if a := p.awaitUntil(p.next-2, func(a *answer) bool { return a.header != nil }); a.status() != "200" {
		t.Fatalf("%+v", a)
	}
	if grown := heap() - before; grown > 8<<20 {
		t.Errorf("%d KiB are held", grown>>10)
	}
	p = s.greet(t)
	id := p.id()
	p.write(id, true, append(p.encode(request("GET", "/", "cookie", "a")...), bytes.Repeat([]byte{0xbe}, 600)...))
	if a := p.await(id); a.status() != "431" {
		t.Errorf("600 crumbs: %+v", a)
	}
}
