package client

import (
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"
	"weak"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"portico.dev/internal/httpengine/engine"
)

// large sends a block with fields of n bytes in total that the table does not keep, and one field that it keeps.
func (p *peer) large(id uint32, n int, kept string) {
	p.buffer.Reset()
	_ = p.hpack.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	_ = p.hpack.WriteField(hpack.HeaderField{Name: "x-large", Value: strings.Repeat("Z", n), Sensitive: true})
	_ = p.hpack.WriteField(hpack.HeaderField{Name: "x-kept", Value: kept})
	block := append([]byte(nil), p.buffer.Bytes()...)
	first := block[:min(len(block), 16<<10)]
	block = block[len(first):]
	_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndHeaders: len(block) == 0, EndStream: true})
	for len(block) > 0 {
		part := block[:min(len(block), 16<<10)]
		block = block[len(part):]
		_ = p.WriteContinuation(id, len(block) == 0, part)
	}
}

// A38: one response header that is too large fails its request and no other request on the connection. Later blocks are decoded with
// the correct table.
func TestA38OversizedHeaderFailsOnlyItsRequest(t *testing.T) {
	asked := make(chan struct{})
	let := sync.OnceFunc(func() { close(asked) })
	c := connect(t, serve(t, nil, func(p *peer) {
		_ = p.WriteSettingsAck()
		other, id := p.request(), p.request()
		p.large(id, config().MaxHeaderBytes*11/10, "it")
		<-asked
		p.headers(other, true, ":status", "200", "x-kept", "it")
		p.headers(p.request(), true, ":status", "200", "x-kept", "it")
		p.large(p.request(), config().MaxHeaderBytes*2, "it")
		p.drain()
	}))
	t.Cleanup(let)
	other := send(c, newRequest(t, http.MethodGet, "/other", nil))
	for c.newestStream() == 0 { // until the request has begun
		runtime.Gosched()
	}
	_, err := c.RoundTrip(newRequest(t, http.MethodGet, "/", nil))
	if kindOf(err) != engine.ProtocolViolation || !strings.Contains(err.Error(), "larger than allowed") {
		t.Fatalf("RoundTrip with a large header: error = %v, want a ProtocolViolation that contains \"larger than allowed\"", err)
	}
	let()
	<-other.done
	if other.err != nil || other.resp.Header.Get("X-Kept") != "it" {
		t.Errorf("other request = %v, error %v, want X-Kept: it", other.resp, other.err)
	}
	resp, err := c.RoundTrip(newRequest(t, http.MethodGet, "/", nil))
	if err != nil || resp.Header.Get("X-Kept") != "it" {
		t.Errorf("next request = %v, error %v, want X-Kept: it", resp, err)
	}
	if _, err = c.RoundTrip(newRequest(t, http.MethodGet, "/", nil)); kindOf(err) != engine.ProtocolViolation || !c.Closed() {
		t.Errorf("RoundTrip with a header of twice the limit: error = %v, want a ProtocolViolation and a closed connection", err)
	}
}

func (c *Conn) newestStream() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newest
}

// A40: an idle connection keeps no headers of the last response.
func TestA40IdleConnectionKeepsNoResponseHeaders(t *testing.T) {
	c := connect(t, serve(t, nil, func(p *peer) {
		_ = p.WriteSettingsAck()
		p.large(p.request(), config().MaxHeaderBytes/2, "it")
		_ = p.WritePing(false, [8]byte{1}) // Its acknowledgement confirms that the response was processed.
		p.next(http2.FramePing)
		p.drain()
	}))
	resp, err := c.RoundTrip(newRequest(t, http.MethodGet, "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	kept := weak.Make(unsafe.StringData(resp.Header.Get("X-Large")))
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	resp = nil
	for deadline := time.Now().Add(30 * time.Second); kept.Value() != nil; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatal("header of the last response is still in memory, want it collected")
		}
	}
	runtime.KeepAlive(c)
}
