package client

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"portico.dev/internal/httpengine/engine"
)

// peer is a server that reads and writes HTTP/2 frames directly.
type peer struct {
	*http2.Framer
	nc     net.Conn
	buffer bytes.Buffer
	hpack  *hpack.Encoder
	frames chan *came // received frames without SETTINGS and acknowledgements
}

// serve starts a peer that handles each connection with script. The connection may end when script returns.
func serve(t *testing.T, settings []http2.Setting, script func(*peer)) string {
	t.Helper()
	return listen(t, func(nc net.Conn) {
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(nc, preface); err != nil || string(preface) != http2.ClientPreface {
			return
		}
		p := &peer{Framer: http2.NewFramer(nc, nc), nc: nc, frames: make(chan *came, 10_000)}
		p.hpack = hpack.NewEncoder(&p.buffer)
		p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		p.AllowIllegalWrites = true
		if p.WriteSettings(settings...) != nil {
			return
		}
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(p.read)
		script(p)
		_ = nc.Close()
	})
}

func (p *peer) read() {
	defer close(p.frames)
	for {
		f, err := p.ReadFrame()
		if err != nil {
			return
		}
		c := &came{FrameHeader: f.Header()}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			continue
		case *http2.WindowUpdateFrame:
			if f.StreamID == 0 {
				continue
			}
		case *http2.DataFrame:
			c.bytes = bytes.Clone(f.Data())
		case *http2.GoAwayFrame:
			c.code = f.ErrCode
		case *http2.RSTStreamFrame:
			c.code = f.ErrCode
		}
		p.frames <- c
	}
}

// came is a copy of a received frame. The Framer reuses its frames.
type came struct {
	http2.FrameHeader
	code  http2.ErrCode
	bytes []byte
}

// next returns the next frame of one of the types. It returns nil if the connection has ended.
func (p *peer) next(types ...http2.FrameType) *came {
	for f := range p.frames {
		for _, t := range types {
			if f.Type == t {
				return f
			}
		}
	}
	return nil
}

// request returns the stream of the next request.
func (p *peer) request() uint32 {
	if f := p.next(http2.FrameHeaders); f != nil {
		return f.StreamID
	}
	return 0
}

// drain waits for the end of the connection.
func (p *peer) drain() {
	for range p.frames { //nolint:revive // Only wait.
	}
}

// verdict returns the code with which the client reset the stream or the connection.
func (p *peer) verdict() (http2.ErrCode, bool) {
	if f := p.next(http2.FrameRSTStream, http2.FrameGoAway); f != nil {
		return f.code, true
	}
	return 0, false
}

func (p *peer) block(fields ...string) []byte {
	p.buffer.Reset()
	for i := 0; i+1 < len(fields); i += 2 {
		_ = p.hpack.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // A buffer has no errors.
	}
	return bytes.Clone(p.buffer.Bytes())
}

func (p *peer) headers(stream uint32, end bool, fields ...string) {
	_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: p.block(fields...), EndHeaders: true, EndStream: end})
}

// kindOf returns the kind of an error, or -1 for nil.
func kindOf(err error) engine.ErrorKind {
	var e *engine.Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return -1
}

// look runs the periodic check of c until the test ends.
func look(t *testing.T, c *Conn, idle bool) {
	t.Helper()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(c.config.CheckInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				c.Check(idle)
			case <-stop:
				return
			}
		}
	})
	t.Cleanup(func() { close(stop); wg.Wait() })
}
