package faults

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// endpoint is one extension server of a Service.
type endpoint struct {
	address string
	kill    func() // at once, as the end of a process does: the listener and every connection
}

// ok answers every request.
var ok = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	_, _ = io.WriteString(w, `{"kind":"Foo"}`)
})

// serve runs an endpoint on l.
func serve(t testing.TB, l net.Listener, config *tls.Config, h http.Handler) *endpoint {
	t.Helper()
	p := new(http.Protocols)
	p.SetHTTP2(true)
	p.SetHTTP1(true)
	s := &http.Server{Handler: h, TLSConfig: config.Clone(), Protocols: p, ErrorLog: log.New(io.Discard, "", 0)}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.ServeTLS(l, "", "") })
	e := &endpoint{address: l.Addr().String(), kill: func() { _ = s.Close() }}
	t.Cleanup(func() { e.kill(); wg.Wait() })
	return e
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// tcp handles connections by hand. They are closed when handle returns, or with the test.
func tcp(t testing.TB, handle func(net.Conn)) string {
	t.Helper()
	l := listen(t)
	stop, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer context.AfterFunc(stop, func() { _ = c.Close() })()
				defer func() { _ = c.Close() }()
				handle(c)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); cancel(); wg.Wait() })
	return l.Addr().String()
}

// goingAway serves the given number of requests on each connection, sends GOAWAY with the last of them, and drops the rest, as
// announced. It calls served for each served request.
func goingAway(t testing.TB, config *tls.Config, per int, served func()) string {
	t.Helper()
	return tcp(t, func(raw net.Conn) {
		c := tls.Server(raw, config)
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(c, preface); err != nil {
			return
		}
		var block bytes.Buffer
		encoder := hpack.NewEncoder(&block)
		framer := http2.NewFramer(c, c)
		framer.SetMaxReadFrameSize(1 << 20)
		_ = framer.WriteSettings()
		count, last := 0, uint32(0)
		for {
			frame, err := framer.ReadFrame()
			if err != nil {
				return
			}
			ended := false
			switch fr := frame.(type) {
			case *http2.SettingsFrame:
				if !fr.IsAck() {
					_ = framer.WriteSettingsAck()
				}
			case *http2.PingFrame:
				if !fr.IsAck() {
					_ = framer.WritePing(true, fr.Data)
				}
			case *http2.HeadersFrame:
				ended = fr.StreamEnded()
			case *http2.DataFrame:
				if n := uint32(len(fr.Data())); n > 0 {
					_ = framer.WriteWindowUpdate(0, n)
				}
				ended = fr.StreamEnded()
			}
			id := frame.Header().StreamID
			if !ended || count >= per && id > last {
				continue
			}
			count, last = count+1, max(last, id)
			served()
			block.Reset()
			_ = encoder.WriteField(hpack.HeaderField{Name: ":status", Value: "201"})
			_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
			if count == per {
				_ = framer.WriteGoAway(last, http2.ErrCodeNo, nil)
			}
		}
	})
}
