package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

func TestA28MalformedResponsesAreNotForwarded(t *testing.T) {
	h1 := func(answer string) func(*testEnv) string {
		return func(w *testEnv) string {
			return w.raw("http/1.1", func(c *tls.Conn) {
				_, _ = c.Read(make([]byte, 4096))
				_, _ = io.WriteString(c, answer)
			})
		}
	}
	h2 := func(do func(f *frames, stream uint32)) func(*testEnv) string {
		return func(w *testEnv) string {
			return w.raw("h2", func(c *tls.Conn) {
				if f, ok := newFrames(c); ok {
					_ = f.WriteSettings()
					f.each(func(stream uint32) bool { do(f, stream); return true })
				}
			})
		}
	}
	tests := []struct {
		name   string
		listen func(*testEnv) string
	}{
		{"not HTTP", h1("SSH-2.0-OpenSSH\r\n\r\n")},
		{"endless header over HTTP/1.1", h1("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2<<20) + "\r\n\r\n")},
		{"endless headers over HTTP/2", h2(func(f *frames, stream uint32) {
			var big []string
			big = append(big, ":status", "200")
			for i := range 600 {
				big = append(big, fmt.Sprintf("x-%d", i), strings.Repeat("y", 900))
			}
			f.headerBlocks(stream, big)
		})},
		{"status that is no number", h2(func(f *frames, stream uint32) { f.header(stream, true, ":status", "abc") })},
		{"no status", h2(func(f *frames, stream uint32) { f.header(stream, true, "x", "y") })},
		{"data on a stream that does not exist", h2(func(f *frames, stream uint32) { _ = f.WriteData(stream+100, true, []byte("x")) })},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newTestEnv(t)
			b := w.backend(w.set(func(o *Options) { o.MaxHeaderBytes = 64 << 10 }), test.listen(w))
			start := time.Now()
			_, err := get(t, b)
			var failed *Error
			if !errors.As(err, &failed) || !failed.Protocol || !failed.Sent {
				t.Errorf("GET error = %#v (%v), want a protocol error, sent", err, err)
			}
			if took := time.Since(start); took > time.Minute {
				t.Errorf("time until the error = %s, want at most a minute", took)
			}
		})
	}
}

// headerBlocks writes a header that is larger than one frame.
func (f *frames) headerBlocks(stream uint32, fields []string) {
	f.buffer.Reset()
	for i := 0; i+1 < len(fields); i += 2 {
		_ = f.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	block := bytes.Clone(f.buffer.Bytes())
	first := block[:min(len(block), 16000)]
	block = block[len(first):]
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: first, EndStream: true, EndHeaders: len(block) == 0})
	for len(block) > 0 {
		part := block[:min(len(block), 16000)]
		block = block[len(part):]
		if f.WriteContinuation(stream, len(block) == 0, part) != nil {
			return
		}
	}
}

func TestA28HostileSettingsFailRequests(t *testing.T) {
	tests := []struct {
		name     string
		settings http2.Setting
	}{
		{"no stream allowed", http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0}},
		{"frames of size 0", http2.Setting{ID: http2.SettingMaxFrameSize, Val: 0}},
		{"window beyond the limit", http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 + 5}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newTestEnv(t)
			var conns atomic.Int64
			address := w.raw("h2", func(c *tls.Conn) {
				conns.Add(1)
				if f, ok := newFrames(c); ok {
					_ = f.WriteSettings(test.settings)
					f.each(func(uint32) bool { return true })
				}
			})
			b := w.backend(w.set(), address)
			ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://x/", strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := b.RoundTrip(r); err == nil {
				_ = resp.Body.Close()
				t.Errorf("POST = %s, want an error", resp.Status)
			}
			if conns.Load() > maxUnprocessed {
				t.Errorf("%d connections for one request, want at most %d", conns.Load(), maxUnprocessed)
			}
		})
	}
}
