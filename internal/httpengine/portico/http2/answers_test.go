package http2_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"
)

// Valid and invalid responses of servers, and the results for the caller. Words after "want" of an error are Portico's error kinds.
// net/http has no names for them.
func TestResponsesOfServers(t *testing.T) {
	many := func(n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprint("x-", i), strings.Repeat("y", 1000))
		}
		return list
	}
	one := func(do func(b *backend, id uint32)) func(*backend) {
		return func(b *backend) {
			b.settle()
			if id := b.request(true); id != 0 {
				do(b, id)
			}
		}
	}
	const locksUp = "it locks up" // go1.26.8: abortStream with cc.mu held
	raw := func(kind http2.FrameType, flags http2.Flags, stream uint32, payload string) func(*backend) {
		return one(func(b *backend, _ uint32) { b.tell(b.WriteRawFrame(kind, flags, stream, []byte(payload))) })
	}
	for _, test := range []struct {
		name   string
		method string
		script func(*backend)
		want   string   // the caller's result
		saw    []string // frames that the server must receive; nil: any
		theirs string   // the result of net/http's caller, if it differs in more than the kind of an error
	}{
		{"nothing", "GET", one(func(b *backend, id uint32) { b.answer(id, true) }), "200 OK", []string{}, ""},
		{"headers", "GET", one(func(b *backend, id uint32) { b.answer(id, true, "x", "a", "y-z", "b", "x", "c") }), `200 OK | header X=["a" "c"] Y-Z=["b"]`, []string{}, ""},
		{"a body", "GET", one(func(b *backend, id uint32) {
			b.answer(id, false)
			b.tell(b.WriteData(id, false, []byte("ab")))
			b.tell(b.WriteData(id, false, nil))
			b.tell(b.WriteDataPadded(id, true, []byte("c"), make([]byte, 9)))
		}), "200 OK | length -1 | body abc", []string{}, ""},
		{"a body that ends by itself", "GET", one(func(b *backend, id uint32) {
			b.answer(id, false, "content-length", "3")
			b.tell(b.WriteData(id, false, []byte("abc")))
			b.tell(b.WriteData(id, true, nil))
		}), `200 OK | header Content-Length=["3"] | length 3 | body abc`, []string{}, ""},
		{"trailers", "GET", one(func(b *backend, id uint32) {
			b.answer(id, false, "trailer", "x-sum")
			b.tell(b.WriteData(id, false, []byte("abc")))
			b.headers(id, true, "x-sum", "1", "x-more", "2")
		}), `200 OK | length -1 | body abc | trailer X-More=["2"] X-Sum=["1"]`, []string{}, ""},
		{"204", "GET", one(func(b *backend, id uint32) { b.headers(id, true, ":status", "204") }), "204 No Content", []string{}, ""},
		{"304 with a length", "GET", one(func(b *backend, id uint32) { b.headers(id, true, ":status", "304", "content-length", "3") }), `304 Not Modified | header Content-Length=["3"] | length 3`, nil, `304 Not Modified | header Content-Length=["3"] | length 3 | then error`},
		{"HEAD with a length", "HEAD", one(func(b *backend, id uint32) { b.answer(id, true, "content-length", "3") }), `200 OK | header Content-Length=["3"] | length 3`, []string{}, ""},
		{"a code that nobody knows", "GET", one(func(b *backend, id uint32) { b.headers(id, true, ":status", "799") }), "799 ", []string{}, ""},
		{"interim answers", "GET", one(func(b *backend, id uint32) {
			b.headers(id, false, ":status", "103", "link", "x")
			b.headers(id, false, ":status", "100")
			b.answer(id, true)
		}), "200 OK", []string{}, ""},
		{"several header frames", "GET", one(func(b *backend, id uint32) {
			block := b.encode(append([]string{":status", "200"}, many(20)...)...)
			b.tell(b.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:100], EndStream: true}))
			for chunk := range slices.Chunk(block[100:], 3000) {
				b.tell(b.WriteContinuation(id, false, chunk))
			}
			b.tell(b.WriteContinuation(id, true, nil))
			b.rest()
		}), "", []string{}, ""},
		{"frames and settings that nobody knows", "GET", one(func(b *backend, id uint32) {
			b.tell(b.WriteRawFrame(0x77, 0xff, id, []byte("abc")))
			b.tell(b.WriteSettings(http2.Setting{ID: 0x99, Val: 1 << 31}))
			b.tell(b.WriteRawFrame(http2.FramePriority, 0, id, []byte("\x00\x00\x00\x00\x10")))
			b.answer(id, true)
		}), "200 OK", []string{}, ""},

		{"the connection ends", "GET", one(func(b *backend, _ uint32) { _ = b.conn.NetConn().Close() }), "lost", nil, ""},
		{"the connection ends within the body", "GET", one(func(b *backend, id uint32) {
			b.answer(id, false)
			b.tell(b.WriteData(id, false, []byte("abc")))
			_ = b.conn.Close()
		}), "200 OK | length -1 | body abc | then lost", nil, ""},
		{"the connection ends within a frame", "GET", one(func(b *backend, id uint32) {
			_, _ = b.conn.Write([]byte{0, 0, 100, 1, 5, 0, 0, 0, 1})
			_ = b.conn.Close()
		}), "lost", nil, ""},
		{"RST_STREAM", "GET", one(func(b *backend, id uint32) { b.tell(b.WriteRSTStream(id, http2.ErrCodeInternal)) }), "reset", []string{}, ""},
		{"RST_STREAM NO_ERROR without an answer", "GET", one(func(b *backend, id uint32) { b.tell(b.WriteRSTStream(id, http2.ErrCodeNo)) }), "reset", []string{}, ""},
		{"RST_STREAM within the body", "GET", one(func(b *backend, id uint32) {
			b.answer(id, false, "content-length", "9")
			b.tell(b.WriteData(id, false, []byte("abc")))
			b.tell(b.WriteRSTStream(id, http2.ErrCodeCancel))
		}), "reset", []string{}, `200 OK | header Content-Length=["9"] | length 9 | body abc | then error`},
		{"RST_STREAM within a long body", "GET", one(func(b *backend, id uint32) {
			b.answer(id, false, "content-length", "99999")
			b.tell(b.WriteData(id, false, []byte("abc")))
			b.tell(b.WriteRSTStream(id, http2.ErrCodeCancel))
		}), `200 OK | header Content-Length=["99999"] | length 99999 | body abc | then reset`, []string{}, ""},
		{"REFUSED_STREAM", "GET", one(func(b *backend, id uint32) { b.tell(b.WriteRSTStream(id, http2.ErrCodeRefusedStream)) }), "refused", []string{}, ""},
		{"REFUSED_STREAM after the head", "GET", one(func(b *backend, id uint32) {
			b.answer(id, false)
			b.tell(b.WriteRSTStream(id, http2.ErrCodeRefusedStream))
		}), "200 OK | length -1 | then reset", []string{}, ""},
		{"RST_STREAM after the whole answer", "GET", one(func(b *backend, id uint32) {
			b.answer(id, false)
			b.tell(b.WriteData(id, true, []byte("abc")))
			b.tell(b.WriteRSTStream(id, http2.ErrCodeNo))
		}), "200 OK | length -1 | body abc", []string{}, ""},
		{"GOAWAY that leaves it out", "GET", one(func(b *backend, _ uint32) { b.tell(b.WriteGoAway(0, http2.ErrCodeNo, nil)) }), "unprocessed", nil, ""},
		{"GOAWAY that leaves it out, with a code", "GET", one(func(b *backend, _ uint32) { b.tell(b.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, []byte("why"))) }), "unprocessed", nil, ""},
		{"GOAWAY, and its answer", "GET", one(func(b *backend, id uint32) {
			b.tell(b.WriteGoAway(1<<31-1, http2.ErrCodeNo, nil))
			b.tell(b.WriteGoAway(id, http2.ErrCodeNo, nil))
			b.answer(id, false)
			b.tell(b.WriteData(id, true, []byte("abc")))
		}), "200 OK | length -1 | body abc", nil, ""},
		{"GOAWAY with a code, and its answer", "GET", one(func(b *backend, id uint32) {
			b.tell(b.WriteGoAway(id, http2.ErrCodeInternal, nil))
			b.answer(id, true)
		}), "200 OK", nil, "200 OK or error"},
		{"GOAWAY twice, the second of which leaves it out", "GET", one(func(b *backend, id uint32) {
			b.tell(b.WriteGoAway(1<<31-1, http2.ErrCodeNo, nil))
			b.tell(b.WriteGoAway(0, http2.ErrCodeNo, nil))
		}), "unprocessed", nil, ""},
		{"GOAWAY, and the end", "GET", one(func(b *backend, id uint32) {
			b.tell(b.WriteGoAway(id, http2.ErrCodeNo, nil))
			_ = b.conn.Close()
		}), "lost", nil, ""},
		{"silence", "GET", func(b *backend) {
			b.settle()
			b.request(true)
			for { // and does not answer PINGs
				if f, err := b.ReadFrame(); err != nil {
					return
				} else if _, ok := f.(*http2.GoAwayFrame); ok {
					return
				}
			}
		}, "silent or late", nil, ""},
		{"no answer, but answers to PINGs", "GET", one(func(*backend, uint32) {}), "late", []string{"RST 1 CANCEL"}, ""},
		{"no SETTINGS", "GET", func(b *backend) { b.answer(1, true) }, "broken", nil, ""},
		{"another protocol", "GET", func(b *backend) {
			_, _ = io.WriteString(b.conn, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
		}, "broken", nil, ""},

		{"no status", "GET", one(func(b *backend, id uint32) { b.headers(id, true, "x", "y") }), "broken", []string{"RST 1 PROTOCOL_ERROR"}, ""},
		{"a status that is none", "GET", one(func(b *backend, id uint32) { b.headers(id, true, ":status", "abc") }), "broken", []string{"RST 1 PROTOCOL_ERROR"}, ""},
		{"a status of four digits", "GET", one(func(b *backend, id uint32) { b.headers(id, true, ":status", "2000") }), "broken", []string{"RST 1 PROTOCOL_ERROR"}, "2000 "},
		{"a status twice", "GET", one(func(b *backend, id uint32) { b.headers(id, true, ":status", "200", ":status", "200") }), "broken", []string{"RST 1 PROTOCOL_ERROR"}, ""},
		{"a request's pseudo field", "GET", one(func(b *backend, id uint32) { b.answer(id, true, ":path", "/") }), "broken", []string{"RST 1 PROTOCOL_ERROR"}, ""},
		{"a pseudo field after others", "GET", one(func(b *backend, id uint32) { b.headers(id, true, "a", "b", ":status", "200") }), "broken", []string{"RST 1 PROTOCOL_ERROR"}, ""},
		{"a capital in a name", "GET", one(func(b *backend, id uint32) { b.answer(id, true, "X", "y") }), "broken", []string{"RST 1 PROTOCOL_ERROR"}, ""},
		{"a line break in a value", "GET", one(func(b *backend, id uint32) { b.answer(id, true, "x", "a\r\nb: c") }), "broken", []string{"RST 1 PROTOCOL_ERROR"}, ""},
		{"101", "GET", one(func(b *backend, id uint32) { b.headers(id, false, ":status", "101") }), "broken", []string{"RST 1 PROTOCOL_ERROR"}, "error"},
		{"100 that ends the stream", "GET", one(func(b *backend, id uint32) { b.headers(id, true, ":status", "100") }), "broken", []string{"RST 1 PROTOCOL_ERROR"}, ""},
		{"100 without end", "GET", one(func(b *backend, id uint32) {
			for range 2000 {
				b.headers(id, false, ":status", "100", "x", strings.Repeat("y", 1000))
			}
		}), "broken", []string{"RST 1 PROTOCOL_ERROR"}, ""},
		{"DATA before the head", "GET", one(func(b *backend, id uint32) { b.tell(b.WriteData(id, true, []byte("abc"))) }), "broken", []string{"RST 1 PROTOCOL_ERROR"}, ""},
		{"more than its length", "GET", one(func(b *backend, id uint32) {
			b.answer(id, false, "content-length", "2")
			b.tell(b.WriteData(id, true, []byte("abc")))
		}), "broken", []string{"RST 1 PROTOCOL_ERROR"}, `200 OK | header Content-Length=["2"] | length 2 | body ab | then error`},
		{"less than its length", "GET", one(func(b *backend, id uint32) {
			b.answer(id, false, "content-length", "4")
			b.tell(b.WriteData(id, true, []byte("abc")))
		}), "broken", nil, `200 OK | header Content-Length=["4"] | length 4 | body abc | then error`},
		{"a length without a body", "GET", one(func(b *backend, id uint32) { b.answer(id, true, "content-length", "4") }), "broken", nil, `200 OK | header Content-Length=["4"] | length 4 | then error`},
		{"two lengths", "GET", one(func(b *backend, id uint32) { b.answer(id, true, "content-length", "0", "content-length", "1") }), "broken", nil, `200 OK | header Content-Length=["0" "1"] | length -1`},
		{"trailers that do not end the stream", "GET", one(func(b *backend, id uint32) {
			b.answer(id, false)
			b.headers(id, false, "x", "y")
		}), "200 OK | length -1 | then broken", nil, ""},
		{"a pseudo field in trailers", "GET", one(func(b *backend, id uint32) {
			b.answer(id, false)
			b.headers(id, true, ":status", "200")
		}), "200 OK | length -1 | then broken", nil, ""},
		{"headers that are too large", "GET", one(func(b *backend, id uint32) {
			b.longHead(id, append([]string{":status", "200"}, many(100)...))
		}), "broken", nil, ""},
		{"CONTINUATIONs without end", "GET", one(func(b *backend, id uint32) {
			b.tell(b.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b.encode(":status", "200")}))
			for range 1000 {
				if b.WriteContinuation(id, false, b.encode("x", strings.Repeat("y", 8000))) != nil {
					return
				}
			}
		}), "broken", nil, ""},
		{"empty CONTINUATIONs without end", "GET", one(func(b *backend, id uint32) {
			b.tell(b.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b.encode(":status", "200")}))
			for range 100_000 {
				if b.WriteContinuation(id, false, nil) != nil {
					return
				}
			}
		}), "broken", nil, "late"},
		{"PUSH_PROMISE", "GET", raw(http2.FramePushPromise, 4, 1, "\x00\x00\x00\x02\x82"), "broken", []string{"GOAWAY PROTOCOL_ERROR"}, ""},
		{"HEADERS on a stream that was never begun", "GET", one(func(b *backend, id uint32) { b.answer(id+2, true) }), "broken", []string{"GOAWAY PROTOCOL_ERROR"}, ""},
		{"DATA on a stream that was never begun", "GET", raw(http2.FrameData, 1, 7, "abc"), "broken", []string{"GOAWAY PROTOCOL_ERROR"}, ""},
		{"HEADERS on an even stream", "GET", one(func(b *backend, _ uint32) { b.answer(2, true) }), "broken", []string{"GOAWAY PROTOCOL_ERROR"}, ""},
		{"a block that does not decode", "GET", raw(http2.FrameHeaders, 5, 1, "\xff\x80\x01"), "broken", []string{"GOAWAY COMPRESSION_ERROR"}, ""},
		{"a frame that is too long", "GET", raw(http2.FrameData, 0, 1, strings.Repeat("x", 20_000)), "broken", []string{"GOAWAY FRAME_SIZE_ERROR"}, ""},
		{"SETTINGS on a stream", "GET", raw(http2.FrameSettings, 0, 1, ""), "broken", []string{"GOAWAY PROTOCOL_ERROR"}, ""},
		{"SETTINGS of another length", "GET", raw(http2.FrameSettings, 0, 0, "abc"), "broken", []string{"GOAWAY FRAME_SIZE_ERROR"}, ""},
		{"frames of size 0", "GET", raw(http2.FrameSettings, 0, 0, "\x00\x05\x00\x00\x00\x00"), "broken", []string{"GOAWAY PROTOCOL_ERROR"}, ""},
		{"a window beyond the limit", "GET", raw(http2.FrameSettings, 0, 0, "\x00\x04\x80\x00\x00\x00"), "broken", []string{"GOAWAY FLOW_CONTROL_ERROR"}, ""},
		{"PING of another length", "GET", raw(http2.FramePing, 0, 0, "abc"), "broken", []string{"GOAWAY FRAME_SIZE_ERROR"}, ""},
		{"GOAWAY of another length", "GET", raw(http2.FrameGoAway, 0, 0, "abc"), "broken", []string{"GOAWAY FRAME_SIZE_ERROR"}, ""},
		{"RST_STREAM of another length", "GET", raw(http2.FrameRSTStream, 0, 1, "abc"), "broken", []string{"GOAWAY FRAME_SIZE_ERROR"}, ""},
		{"WINDOW_UPDATE of nothing", "GET", raw(http2.FrameWindowUpdate, 0, 0, "\x00\x00\x00\x00"), "broken", []string{"GOAWAY PROTOCOL_ERROR"}, ""},
		{"WINDOW_UPDATE of nothing, on its stream", "GET", raw(http2.FrameWindowUpdate, 0, 1, "\x00\x00\x00\x00"), "broken", []string{"RST 1 PROTOCOL_ERROR"}, ""},
		{"the connection's window beyond the limit", "GET", raw(http2.FrameWindowUpdate, 0, 0, "\x7f\xff\xff\xff"), "broken", []string{"GOAWAY FLOW_CONTROL_ERROR"}, ""},
		{"a stream's window beyond the limit", "GET", raw(http2.FrameWindowUpdate, 0, 1, "\x7f\xff\xff\xff"), "broken", []string{"RST 1 FLOW_CONTROL_ERROR"}, locksUp},
		{"PINGs without end", "GET", one(func(b *backend, _ uint32) {
			for range 100_000 {
				if b.WritePing(false, [8]byte{}) != nil {
					return
				}
			}
		}), "broken or late", nil, ""},
		{"empty DATA without end", "GET", one(func(b *backend, id uint32) {
			b.answer(id, false)
			many := bytes.Repeat([]byte{8: byte(id)}, 20_000) // one write each, so that a busy machine does not report a flood
			for range 10 {
				if _, err := b.conn.Write(many); err != nil {
					return
				}
			}
			b.tell(b.WriteRSTStream(id, http2.ErrCodeInternal))
		}), "200 OK | length -1 | then broken", nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, c := range callers {
				if c.name == library && test.theirs == locksUp {
					continue
				}
				check := func(t *testing.T, listen func(*testing.T, func(*backend)) (connector, func(http.RoundTripper, int) []string)) {
					address, saw := listen(t, test.script)
					rt := c.dial(t, address)
					if test.want == "" {
						res, err := rt.RoundTrip(newRequest(t, test.method, nil))
						if err != nil || len(res.Header) != 20 {
							t.Errorf("RoundTrip = %+v, error %v, want a response with 20 header fields", res, err)
						}
						return
					}
					got, want := asked(rt, newRequest(t, test.method, nil)), test.want
					if c.name == library {
						for _, word := range []string{"silent or late", "broken or late", "broken", "lost", "reset", "refused", "unprocessed", "late"} {
							want = strings.ReplaceAll(want, word, "error")
						}
						if test.theirs != "" {
							want = strings.ReplaceAll(test.theirs, "late", "error")
						}
					}
					if got != want && !slices.Contains(strings.Split(want, " or "), got) {
						t.Errorf("result = %s\nwant %s", got, want)
					}
					if c.name == ours && test.saw != nil {
						if list := saw(rt, len(test.saw)); !slices.Equal(list, test.saw) && (len(list) > 0 || len(test.saw) > 0) {
							t.Errorf("frames received by the server = %q, want %q", list, test.saw)
						}
					}
				}
				t.Run(c.name, func(t *testing.T) {
					if c.name == library && test.name == "PINGs without end" {
						check(t, listenByHand) // It waits for a lock while it cannot write. This is not a durable wait.
						return
					}
					synctest.Test(t, func(t *testing.T) { check(t, listenByHandInMemory) })
				})
			}
		})
	}
}

// longHead sends a header that needs several frames.
func (b *backend) longHead(id uint32, list []string) {
	block := b.encode(list...)
	b.tell(b.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:100], EndStream: true}))
	for chunk := range slices.Chunk(block[100:], 16_000) {
		b.tell(b.WriteContinuation(id, false, chunk))
	}
	b.tell(b.WriteContinuation(id, true, nil))
}
