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

// literals encodes a header block. All strings are literals that no table keeps, except for kept, which enters the table.
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

// A38: one header that is too large fails only its stream, even if it is a single field. The connection may be shared by the clients
// of a proxy. Other streams continue, and later blocks are decoded with the correct table.
func TestA38OversizedHeaderFailsOnlyItsStream(t *testing.T) {
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
			t.Fatalf("%s: response = %+v, want status 431", name, a)
		}
		block := p.encode(request("GET", "/good", "x-kept", kept)...)
		if strings.Contains(string(block), kept) {
			t.Fatalf("%s: block is encoded without the table, want a reference", name)
		}
		id = p.id()
		p.write(id, true, block)
		if a := p.await(id); a.status() != "200" || string(a.body) != kept {
			t.Fatalf("request after %s = %+v, want status 200 with the value of the table", name, a)
		}
	}
	let()
	if a := p.await(other); a.status() != "200" {
		t.Errorf("other request on the connection = %+v, want status 200", a)
	}
	p = s.greet(t)
	id := p.id()
	p.write(id, true, p.literals([2]string{"x-kept", "x"}, request("GET", "/good", "x-long", long(140_000))...))
	if a := p.await(id); a.goneAway != "ENHANCE_YOUR_CALM" {
		t.Errorf("response to more than twice the allowed size = %+v, want ENHANCE_YOUR_CALM", a)
	}
}

// A40: one-byte references on every stream with closed windows (CVE-2026-49975, CVE-2026-47774). A connection can make the server hold
// at most 500 fields for each of its streams. Each cookie crumb counts as a field.
func TestA40HeaderReferencesAreBoundedPerStream(t *testing.T) {
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
		t.Fatalf("last response = %+v, want status 200", a)
	}
	if grown := heap() - before; grown > 8<<20 {
		t.Errorf("heap grew by %d KiB, want at most 8192", grown>>10)
	}
	p = s.greet(t)
	id := p.id()
	p.write(id, true, append(p.encode(request("GET", "/", "cookie", "a")...), bytes.Repeat([]byte{0xbe}, 600)...))
	if a := p.await(id); a.status() != "431" {
		t.Errorf("response to 600 cookie crumbs = %+v, want status 431", a)
	}
}
