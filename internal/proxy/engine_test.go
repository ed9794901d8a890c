package proxy

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"portico.dev/internal/httpengine"
	"portico.dev/internal/transport"
)

// For every fault of a backend, clients receive the same response with both engines, without an address. The fault counts
// against the endpoint in the same way, and the backend receives the same number of requests.
func TestA42EnginesReportSameFailures(t *testing.T) {
	block := func(fields ...string) []byte {
		var b bytes.Buffer
		e := hpack.NewEncoder(&b)
		for i := 0; i+1 < len(fields); i += 2 {
			_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // a buffer has no errors
		}
		return b.Bytes()
	}
	head := func(f *http2.Framer, id uint32, end bool, fields ...string) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block(fields...), EndHeaders: true, EndStream: end})
	}
	type situation struct {
		name string
		say  func(f *http2.Framer, c *tls.Conn, id uint32)
	}
	const hangs, isReset = "the server hangs", "the connection is reset before the head"
	situations := []situation{
		{"GOAWAY that leaves the stream out", func(f *http2.Framer, c *tls.Conn, _ uint32) {
			_ = f.WriteGoAway(0, http2.ErrCodeNo, []byte(c.LocalAddr().String()))
			_ = c.Close()
		}},
		{"GOAWAY that covers the stream", func(f *http2.Framer, c *tls.Conn, id uint32) {
			_ = f.WriteGoAway(id, http2.ErrCodeInternal, []byte(c.LocalAddr().String()))
			_ = c.Close()
		}},
		{"the connection closes before the head", func(_ *http2.Framer, c *tls.Conn, _ uint32) { _ = c.Close() }},
		{isReset, func(_ *http2.Framer, c *tls.Conn, _ uint32) {
			_ = c.NetConn().(*net.TCPConn).SetLinger(0)
			_ = c.NetConn().Close()
		}},
		{"the connection closes within a short answer", func(f *http2.Framer, c *tls.Conn, id uint32) {
			head(f, id, false, ":status", "200", "content-length", "10")
			_ = f.WriteData(id, false, []byte("some"))
			_ = c.Close()
		}},
		{hangs, func(*http2.Framer, *tls.Conn, uint32) {}},
		{"frames of size 0", func(f *http2.Framer, _ *tls.Conn, _ uint32) {
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 0})
		}},
		{"headers larger than allowed", func(f *http2.Framer, _ *tls.Conn, id uint32) {
			head(f, id, true, ":status", "200", "x", strings.Repeat("y", 12<<10))
		}},
		{"a flood of interim responses", func(f *http2.Framer, _ *tls.Conn, id uint32) {
			for range 1000 {
				head(f, id, false, ":status", "103")
			}
		}},
		{"a flood of CONTINUATION", func(f *http2.Framer, _ *tls.Conn, id uint32) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block(":status", "200")})
			for range 10_000 {
				if f.WriteContinuation(id, false, block("x", strings.Repeat("y", 1000))) != nil {
					return
				}
			}
		}},
		{"an answer that nobody asked for", func(f *http2.Framer, _ *tls.Conn, id uint32) { _ = f.WriteData(id+100, true, []byte("x")) }},
		{"an answer that is none", func(f *http2.Framer, _ *tls.Conn, id uint32) { head(f, id, true, "x", "y") }},
	}
	for _, code := range []http2.ErrCode{
		http2.ErrCodeNo, http2.ErrCodeProtocol, http2.ErrCodeInternal, http2.ErrCodeFlowControl, http2.ErrCodeStreamClosed,
		http2.ErrCodeRefusedStream, http2.ErrCodeCancel, http2.ErrCodeEnhanceYourCalm, 0x99,
	} {
		situations = append(situations, situation{"RST_STREAM " + code.String(), func(f *http2.Framer, _ *tls.Conn, id uint32) {
			_ = f.WriteRSTStream(id, code)
		}})
	}
	for _, s := range situations {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			t.Run(s.name+" "+method, func(t *testing.T) {
				check := func(t *testing.T, env func(*testing.T, Config, transport.Options) *testEnv) {
					var outcomes []string
					var failed []func() bool
					options := transport.Options{MaxHeaderBytes: 8 << 10}
					if s.name == hangs {
						options.HeaderTimeout = 3 * time.Second
					}
					for _, n := range httpengine.Names() {
						options.Engine = n
						w := env(t, Config{}, options)
						var asked atomic.Int64
						address := w.raw("h2", func(c *tls.Conn) {
							if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
								return
							}
							f := http2.NewFramer(c, c)
							f.AllowIllegalWrites = true
							_ = f.WriteSettings()
							_ = f.WriteSettingsAck()
							for {
								frame, err := f.ReadFrame()
								if err != nil {
									return
								}
								switch fr := frame.(type) {
								case *http2.PingFrame:
									if !fr.IsAck() {
										_ = f.WritePing(true, fr.Data)
									}
								case *http2.HeadersFrame:
									asked.Add(1)
									s.say(f, c, fr.StreamID)
								}
							}
						})
						b := w.backend(address)
						a := w.do(w.client(), w.request(method, resource, strings.NewReader("{}")))
						host, port, _ := net.SplitHostPort(address)
						if strings.Contains(a.body, host) || strings.Contains(a.body, port) || strings.Contains(a.body, "http2:") {
							t.Errorf("%s: response = %s, want no address and no engine name", n, a.body)
						}
						failed = append(failed, func() bool { return b.Report().Endpoints[0].LastFailure != "" })
						status := a.status(t)
						outcomes = append(outcomes, fmt.Sprintf("%d %s %s, asked %d times", a.StatusCode, status.Reason, status.Message, asked.Load()))
					}
					// The end of the connection can be reported after the request.
					eventually(t, time.Minute, "it is a failure of the endpoint with both engines, or with none", func() bool { return failed[0]() == failed[1]() })
					if outcomes[0] != outcomes[1] {
						t.Errorf("outcome with the engine portico = %s, want that of the library: %s", outcomes[0], outcomes[1])
					}
				}
				if s.name == isReset {
					check(t, newTestEnv)
					return
				}
				synctest.Test(t, func(t *testing.T) { check(t, newMemoryEnv) })
			})
		}
	}
}
