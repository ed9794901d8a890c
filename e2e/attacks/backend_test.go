package attacks

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// whatever matches every permitted result of a faulty extension server: a response, or an error.
const whatever = "answered: (200|429|502|503|504)|answered: cut short|unanswered|GOAWAY .*"

// noAnswer matches the permitted results of an invalid response.
const noAnswer = "answered: (429|502|503|504)|unanswered|GOAWAY .*"

// takenFromServers is the maximum number of frames on a connection to an extension server, equal to the bound for clients.
const takenFromServers = 500_000

// backendFloods are extension servers that flood the front door's client over HTTP/2.
func backendFloods() []*attackRow {
	raw := func(kind http2.FrameType, flags http2.Flags, stream uint32, payload string) func(*hostile2, uint32) {
		return func(c *hostile2, id uint32) {
			if stream == 1 {
				stream = id
			}
			c.flood(func(f *http2.Framer) { _ = f.WriteRawFrame(kind, flags, stream, []byte(payload)) })
		}
	}
	begun := func(then func(*hostile2, uint32)) func(*hostile2, uint32) {
		return func(c *hostile2, id uint32) {
			_ = c.tell(func(f *http2.Framer) { c.headers(f, id, false, ":status", "200", "content-type", "application/json") })
			then(c, id)
		}
	}
	over := func(kind http2.FrameType, payload string) func(*hostile2, uint32) {
		return func(c *hostile2, id uint32) {
			_ = c.answer(id, "200", "application/json", "{}")
			c.flood(func(f *http2.Framer) { _ = f.WriteRawFrame(kind, 0, id, []byte(payload)) })
		}
	}
	setting := func(settings ...http2.Setting) func(*hostile2, uint32) {
		return func(c *hostile2, id uint32) {
			_ = c.tell(func(f *http2.Framer) { _ = f.WriteSettings(settings...) })
			_ = c.answer(id, "200", "application/json", "{}")
		}
	}
	rows := []*attackRow{
		{name: "PING flood from an extension server", cves: []string{"CVE-2019-9512"}, sends: "PING instead of a response", quick: true, hand: true, h2: raw(http2.FramePing, 0, 0, "12345678")},
		{name: "SETTINGS flood from an extension server", cves: []string{"CVE-2019-9515"}, sends: "SETTINGS instead of a response", quick: true, h2: raw(http2.FrameSettings, 0, 0, "")},
		{name: "PRIORITY flood from an extension server", cves: []string{"CVE-2019-9513"}, sends: "PRIORITY instead of a response", h2: raw(http2.FramePriority, 0, 1, "\x00\x00\x00\x00\x10")},
		{name: "RST_STREAM flood from an extension server", cves: []string{"CVE-2019-9514"}, sends: "repeated RST_STREAM of one stream", h2: raw(http2.FrameRSTStream, 0, 1, "\x00\x00\x00\x08")},
		{name: "empty names from an extension server", cves: []string{"CVE-2019-9516"}, sends: "responses with fields with empty names and values", h2: func(c *hostile2, id uint32) {
			_ = c.tell(func(f *http2.Framer) {
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: append(c.fields(":status", "200"), repeat("\x00\x80\x80", 300)...), EndHeaders: true, EndStream: true})
			})
		}, bound: bound{CPU: 8, Outcomes: noAnswer}},
		{name: "an extension server that does not read", cves: []string{"CVE-2019-9517"}, sends: "PING; the extension server does not read the acknowledgements", deaf: true, h2: func(c *hostile2, _ uint32) {
			c.flood(func(f *http2.Framer) { _ = f.WritePing(false, [8]byte{}) })
		}},
		{name: "empty DATA from an extension server", cves: []string{"CVE-2019-9518"}, sends: "a response with empty DATA frames", quick: true, h2: begun(raw(http2.FrameData, 0, 1, ""))},
		{name: "WINDOW_UPDATE of one byte from an extension server", cves: []string{"CVE-2019-9511"}, sends: "WINDOW_UPDATE of one byte on the connection instead of a response", h2: raw(http2.FrameWindowUpdate, 0, 0, "\x00\x00\x00\x01")},
		{name: "WINDOW_UPDATE from an extension server on ended streams", cves: []string{"CVE-2019-9511"}, sends: "a response, and then WINDOW_UPDATE of one byte on its stream", quick: true, h2: over(http2.FrameWindowUpdate, "\x00\x00\x00\x01")},
		{name: "DATA from an extension server on ended streams", cves: []string{"CVE-2019-9511"}, sends: "a response, and then DATA of one byte on its stream", quick: true, h2: over(http2.FrameData, "x")},
		{name: "data dribble from an extension server", cves: []string{"CVE-2019-9511"}, sends: "a response in DATA frames of one byte, as fast as the windows allow", h2: begun(func(c *hostile2, id uint32) {
			c.flood(func(f *http2.Framer) { _ = f.WriteData(id, false, []byte("x")) })
		}), bound: bound{CPU: 8, Outcomes: whatever}},

		{class: "continuation", name: "CONTINUATION flood from an extension server", cves: []string{"CVE-2023-45288"}, sends: "an endless header block with CONTINUATIONs of 8 KB", quick: true, hand: true, h2: continued(literal("x", strings.Repeat("y", 8000)))},
		{class: "continuation", name: "CONTINUATION flood of zero length from an extension server", cves: []string{"CVE-2026-33871"}, sends: "an endless header block with empty CONTINUATIONs", quick: true, h2: continued(nil)},
		{class: "hpack", name: "header bomb from an extension server", cves: []string{"CVE-2016-6581"}, sends: "a response with references of one byte to a field of 3.9 KB", quick: true, hand: true, h2: func(c *hostile2, id uint32) {
			_ = c.tell(func(f *http2.Framer) {
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: append(c.fields(":status", "200", "bomb", strings.Repeat("b", 3900)), repeat("\xbe", 12_000)...), EndHeaders: true, EndStream: true})
			})
		}, bound: bound{CPU: 12, Outcomes: noAnswer}},
		{class: "hpack", name: "many tiny fields from an extension server", sends: "a response with 1,500 fields of two bytes", h2: func(c *hostile2, id uint32) {
			_ = c.tell(func(f *http2.Framer) {
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: append(c.fields(":status", "200"), repeat("\x10\x01a\x01b", 1500)...), EndHeaders: true, EndStream: true})
			})
		}, bound: bound{CPU: 60, Outcomes: whatever}},
		{class: "hpack", name: "Huffman decoding of a response from an extension server", cves: []string{"CVE-2022-41723"}, sends: "a response with 60 KB of Huffman codes in one field", h2: func(c *hostile2, id uint32) {
			_ = c.tell(func(f *http2.Framer) {
				block := append(c.fields(":status", "200"), huffman("x-huffman", strings.Repeat("0", 60_000))...)
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:16_000], EndStream: true})
				for block = block[16_000:]; len(block) > 0; block = block[min(len(block), 16_000):] {
					_ = f.WriteContinuation(id, len(block) <= 16_000, block[:min(len(block), 16_000)])
				}
			})
		}, bound: bound{CPU: 30, Outcomes: whatever}},
		{class: "unexpected", name: "random frames from an extension server", cves: []string{"CVE-2026-27141"}, sends: "frames of random types, flags, lengths and streams, also PUSH_PROMISE", quick: true, hand: true, h2: func(c *hostile2, id uint32) {
			r := rand.New(rand.NewPCG(uint64(id), 2))
			payload := make([]byte, 64)
			for range 50 {
				for i := range payload {
					payload[i] = byte(r.Uint32())
				}
				if c.tell(func(f *http2.Framer) {
					_ = f.WriteRawFrame(http2.FrameType(r.IntN(13)), http2.Flags(r.Uint32()), uint32(r.IntN(int(id)+4)), payload[:r.IntN(len(payload))])
				}) != nil {
					return
				}
			}
		}, bound: bound{CPU: 8, Outcomes: whatever}},
		{class: "unexpected", name: "pushes from an extension server", sends: "an unsolicited PUSH_PROMISE", h2: func(c *hostile2, id uint32) {
			_ = c.tell(func(f *http2.Framer) {
				_ = f.WritePushPromise(http2.PushPromiseParam{StreamID: id, PromiseID: id + 1, BlockFragment: c.fields(":method", "GET", ":scheme", "https", ":authority", "x", ":path", "/"), EndHeaders: true})
			})
		}, bound: bound{CPU: 8, Outcomes: noAnswer}},
		{class: "unexpected", name: "frames from an extension server after GOAWAY", cves: []string{"CVE-2026-27135"}, sends: "GOAWAY, and then responses, PING and SETTINGS", h2: func(c *hostile2, id uint32) {
			_ = c.tell(func(f *http2.Framer) {
				_ = f.WriteGoAway(id, http2.ErrCodeNo, nil)
				_ = f.WriteSettings()
			})
			_ = c.answer(id, "200", "application/json", "{}")
			c.flood(func(f *http2.Framer) { _ = f.WritePing(false, [8]byte{}) })
		}},
		{class: "frame-size", name: "maximum frame size 0 from an extension server", cves: []string{"CVE-2026-33814"}, sends: "SETTINGS_MAX_FRAME_SIZE 0, and a response", quick: true, hand: true, h2: setting(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 0}), do: victims(http.MethodPost), bound: bound{CPU: 8, Outcomes: noAnswer}},
		{class: "frame-size", name: "maximum frame size 16383 from an extension server", cves: []string{"CVE-2026-33814"}, sends: "SETTINGS_MAX_FRAME_SIZE 16383, and a response", h2: setting(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 16_383}), do: victims(http.MethodPost), bound: bound{CPU: 8, Outcomes: noAnswer}},
		{class: "frame-size", name: "maximum frame size 2^32-1 from an extension server", cves: []string{"CVE-2026-33814"}, sends: "SETTINGS_MAX_FRAME_SIZE 2^32-1, and a response", h2: setting(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1<<32 - 1}), do: victims(http.MethodPost), bound: bound{CPU: 8, Outcomes: noAnswer}},

		{class: "windows", name: "cancelled downloads", cves: []string{"golang/go#40423", "golang/go#16510"}, sends: "responses that clients cancel after the first DATA; the connection window must be returned", quick: true, h2: func(c *hostile2, id uint32) {
			_ = c.tell(func(f *http2.Framer) {
				c.headers(f, id, false, ":status", "200", "content-type", "application/json")
				_ = f.WriteData(id, false, make([]byte, 16_000)) // and no end: the client leaves
			})
		}, do: impatient, bound: bound{CPU: 30, Outcomes: whatever}, proof: "http2.TestConnectionWindowIsReturnedForUnreadData, http2/client.TestUploadsWaitForServerWindows"},
		{class: "windows", name: "slow responses", cves: []string{"golang/go#28204"}, sends: "every second response never ends; the others are complete", quick: true, h2: func(c *hostile2, id uint32) {
			if id%4 == 1 {
				_ = c.tell(func(f *http2.Framer) { c.headers(f, id, false, ":status", "200", "content-type", "application/json") })
				return
			}
			_ = c.answer(id, "200", "application/json", "{}")
		}, do: impatient, bound: bound{CPU: 30, Outcomes: whatever}, proof: "transport.TestStreamsBeyondConnectionLimitOpenConnections"},
		{class: "windows", name: "an extension server that allows no streams", cves: []string{"golang/go#32388"}, sends: "SETTINGS_MAX_CONCURRENT_STREAMS 0 after a response, without a later change", quick: true, h2: setting(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0}), bound: bound{CPU: 8, Outcomes: whatever}, proof: "transport.TestA28HostileSettingsFailRequests"},
		{class: "windows", name: "unread uploads to an extension server", cves: []string{"golang/go#32388"}, sends: "zero windows while clients upload", h2: setting(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}), do: victims(http.MethodPost), bound: bound{CPU: 8, Outcomes: whatever}, proof: "transport.TestD17UnreadUploadsDoNotBlockOtherUploads"},
		{class: "late", name: "DATA from an extension server after a reset", cves: []string{"CVE-2026-26311"}, sends: "DATA on streams that clients have cancelled, for as long as the front door accepts it", quick: true, h2: begun(func(c *hostile2, id uint32) {
			_ = c.tell(func(f *http2.Framer) { _ = f.WriteData(id, false, []byte("x")) })
			for c.resets.Load() == 0 && !c.a.over() {
				<-time.After(5 * time.Millisecond)
			}
			c.flood(func(f *http2.Framer) { _ = f.WriteData(id, false, []byte("x")) })
		}), do: impatient, bound: bound{Frames: 1_000_000, CPU: 10, Outcomes: whatever}},
		{class: "interim", name: "1xx flood over HTTP/2", cves: []string{"CVE-2023-0056"}, sends: "repeated 103 responses and no final response", quick: true, h2: func(c *hostile2, id uint32) {
			c.flood(func(f *http2.Framer) { c.headers(f, id, false, ":status", "103", "link", "</x>") })
		}},
		{class: "interim", name: "1xx with END_STREAM", cves: []string{"golang/go#81319"}, sends: "103 with END_STREAM", h2: func(c *hostile2, id uint32) {
			_ = c.tell(func(f *http2.Framer) { c.headers(f, id, true, ":status", "103") })
		}, bound: bound{CPU: 8, Outcomes: noAnswer}},
		{class: "interim", name: "1xx with hop-by-hop headers over HTTP/2", cves: []string{"golang/go#81319"}, sends: "103 with Connection, Transfer-Encoding and Content-Length, and then a final response", h2: func(c *hostile2, id uint32) {
			_ = c.tell(func(f *http2.Framer) {
				c.headers(f, id, false, ":status", "103", "connection", "x-smuggled", "transfer-encoding", "chunked", "content-length", "5", "x-smuggled", "1")
			})
			_ = c.answer(id, "200", "application/json", "{}")
		}, bound: bound{CPU: 8, Outcomes: whatever}, proof: "proxy.TestInterimResponsesAreNotForwarded"},
	}
	for _, a := range rows {
		if a.class == "" {
			a.class = "floods"
		}
		if a.do == nil {
			a.do = victims(http.MethodGet)
		}
		if a.bound.Outcomes == "" {
			a.bound.Outcomes, a.bound.Frames = whatever, takenFromServers
		}
		if a.proof == "" {
			a.proof = map[string]string{"floods": "http2/client.TestD16ServerFloodsEndConnection, transport.TestD16FloodingEndpointIsEjected", "frame-size": "transport.TestA28HostileSettingsFailRequests"}[a.class]
		}
		if a.proof == "" {
			a.proof = "http2.TestResponsesOfServers, http2/client.TestProtocolViolationsEndStreamOrConnection"
		}
	}
	return rows
}

// continued sends an endless header block.
func continued(fragment []byte) func(*hostile2, uint32) {
	return func(c *hostile2, id uint32) {
		c.mu.Lock() // other frames on the connection would interrupt the block
		defer c.mu.Unlock()
		_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.fields(":status", "200")})
		for n := 1; !c.a.over(); n = 0 {
			for c.out.Len() < pieces {
				_ = c.framer.WriteContinuation(id, false, fragment)
				n++
			}
			_ = c.conn.SetWriteDeadline(time.Now().Add(time.Second))
			written, err := c.conn.Write(c.out.Bytes())
			c.out.Reset()
			if err != nil {
				return
			}
			c.frames += int64(n)
			c.a.sent(n, written)
			c.a.mostOf(c.frames)
		}
	}
}

// impatient sends requests with a client timeout of 60 ms.
func impatient(a *attackRun) {
	t := &http.Transport{TLSClientConfig: insecure(), ForceAttemptHTTP2: true, DisableCompression: true}
	defer t.CloseIdleConnections()
	a.again(8, func() error {
		c := &http.Client{Transport: t, Timeout: 60 * time.Millisecond}
		a.victim(c, http.MethodGet)
		return nil
	})
}

// backendAnswers are extension servers that send ambiguous or invalid responses over HTTP/1.1.
func backendAnswers() []*attackRow {
	const good = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
	const hidden = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Smuggled: 1\r\nContent-Length: 8\r\n\r\nsmuggled"
	// say sends one of these responses and keeps the connection, so that the data after it could be read as the next response.
	say := func(all ...string) func(*hostile1) {
		var next atomic.Int64
		return func(c *hostile1) {
			_, _ = io.Copy(io.Discard, c.Body)
			c.keep = c.say(all[int(next.Add(1))%len(all)]) == nil
		}
	}
	h := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	var redirected redirectTarget
	rows := []*attackRow{
		{class: "framing", name: "responses with CL and TE", sends: "responses with a Content-Length and a Transfer-Encoding, with two Content-Lengths, with an invalid Content-Length; another response follows the shorter body", quick: true, hand: true, h1: say(
			h+"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"+hidden, h+"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"+hidden, h+"Content-Length: +2\r\n\r\n{}"+hidden, h+"Transfer-Encoding: x, chunked\r\n\r\n0\r\n\r\n"+hidden,
			"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"+hidden, h+"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"+hidden),
			bound: bound{Outcomes: noAnswer + "|answered: cut short"}, proof: "transport.TestA28MalformedHTTP1ResponsesAreNotForwarded, proxy.TestA28AmbiguousResponseIsRejected"},
		{class: "framing", name: "responses with bare LF and chunk extensions", cves: []string{"CVE-2025-22871", "CVE-2025-55315"}, sends: "headers and chunks with lines that end in a bare LF, and chunk extensions that contain line ends", quick: true, h1: say(
			strings.ReplaceAll(good, "\r\n", "\n"), h+"Transfer-Encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n"+hidden, h+"Transfer-Encoding: chunked\r\n\r\n2;a\nb\r\n{}\r\n0\r\n\r\n"+hidden, h+"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\n0\r\n\r\n"+hidden, h+"X: a\r\n b\r\nContent-Length: 2\r\n\r\n{}"),
			bound: bound{Outcomes: noAnswer + "|answered: cut short"}, proof: "transport.TestA28MalformedHTTP1ResponsesAreNotForwarded, transport.TestParserRejectsMalformedResponsesAtAnySplit"},
		{class: "framing", name: "unsolicited responses", sends: "a response directly followed by another one", quick: true, h1: say(good + hidden), bound: bound{Outcomes: whatever}, proof: "transport.TestA28UnsolicitedResponseBytesAreDropped"},
		{class: "framing", name: "endless chunk extensions from an extension server", sends: "a response in chunks of one byte, each with 30 bytes of chunk extension", h1: say(h + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1;"+strings.Repeat("x", 30)+"\r\nx\r\n", 20_000) + "0\r\n\r\n"), bound: bound{CPU: 10, Outcomes: whatever}, proof: "transport.TestParserRejectsMalformedResponsesAtAnySplit"},
		{class: "interim", name: "1xx flood over HTTP/1.1", cves: []string{"CVE-2023-0056"}, sends: "repeated 103 responses and no final response", quick: true, hand: true, h1: func(c *hostile1) {
			many := strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 300)
			for !c.a.over() && c.say(many) == nil {
				c.a.sent(299, 0)
			}
		}, bound: bound{CPU: 6, Outcomes: noAnswer}, proof: "proxy.TestInterimResponsesAreNotForwarded, transport.TestA28MalformedHTTP1ResponsesAreNotForwarded"},
		{class: "interim", name: "1xx with hop-by-hop headers over HTTP/1.1", cves: []string{"golang/go#81319"}, sends: "103 with Connection, Transfer-Encoding and Content-Length, and then a final response; a 101 without an upgrade request", h1: say(
			"HTTP/1.1 103 Early Hints\r\nConnection: X-Smuggled\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\nX-Smuggled: 1\r\n\r\n"+good, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"+hidden),
			bound: bound{Outcomes: whatever}, proof: "proxy.TestInterimResponsesAreNotForwarded, transport.TestA28MalformedHTTP1ResponsesAreNotForwarded"},
		{class: "expect", name: "a response before the body", cves: []string{"CVE-2024-24791"}, sends: "for uploads with Expect: 100-continue, a response before the body, two 100 responses, and 417; the next request must get its own response", quick: true, hand: true, h1: func() func(*hostile1) {
			var next atomic.Int64
			return func(c *hostile1) {
				body := "{\"serial=" + c.URL.Query().Get("serial")
				answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
				switch next.Add(1) % 4 {
				case 0: // the body is not read
					_ = c.say(answer)
					return
				case 1:
					answer = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + answer
				case 2:
					answer = "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n"
					c.keep = true // and it reads on, where the body would be
					_ = c.say(answer)
					return
				}
				_, _ = io.Copy(io.Discard, c.Body)
				c.keep = c.say(answer) == nil
			}
		}(), do: victims(http.MethodPost), bound: bound{Outcomes: whatever + "|answered: 417"}, proof: "proxy.TestA20UnreadExpectedBodyIsNotLeftOnConnection, transport.TestEarlyResponseIsMatchedToItsRequest"},
		{class: "late", name: "a certificate from an extension server with a NUL in its name", cves: []string{"CVE-2026-47778"}, sends: "a certificate from the trusted CA; its name is the correct name, a NUL and a suffix", quick: true, h1: say(good), nul: true,
			bound: bound{Outcomes: "answered: 503"}, proof: "transport.TestA24WrongBackendCertificateIsRejected"},
		{class: "redirects", name: "redirects from an extension server", cves: []string{"CVE-2022-3172"}, sends: "301, 302, 303, 307, 308 and Refresh to another server; it must not receive a request", quick: true, hand: true, h1: func(c *hostile1) {
			target, err := redirected.listen(c.a)
			if err != nil {
				c.a.fault("%v", err)
				return
			}
			_, _ = io.Copy(io.Discard, c.Body)
			serial := c.a.serial.Load()
			c.keep = c.say(fmt.Sprintf("HTTP/1.1 %d Elsewhere\r\nLocation: https://%s/\r\nRefresh: 0; url=https://%s/\r\nContent-Length: 0\r\n\r\n", []int{301, 302, 303, 307, 308}[serial%5], target, target)) == nil
		}, bound: bound{Outcomes: noAnswer}, proof: "proxy.TestA5BackendRedirectsAreRejected, transport.TestA6HTTPClientsSetCheckRedirect"},
		{class: "redirects", name: "an upgrade that an extension server rejects", cves: []string{"CVE-2018-1002105"}, sends: "an error response to a WebSocket GET; after it, the client must not get the connection", h1: say("HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nno"), quick: true,
			do: func(a *attackRun) {
				messages(message("GET", a.row.path()+"/"+attackedName, "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==") + smuggled(a.row))(a)
			}, bound: bound{Outcomes: "answered: (403|502|503)( (400|403|404))?(, closed)?"}, proof: "proxy.TestA1A4BytesAfterRefusedUpgradeAreNotForwarded"},
	}
	for _, a := range rows {
		if a.do == nil {
			a.do = victims(http.MethodGet)
		}
		if a.bound.CPU == 0 {
			a.bound.CPU = 8
		}
	}
	return rows
}

// redirectTarget listens at the target of redirects. A connection to it is a fault.
type redirectTarget struct{ address atomic.Pointer[string] }

func (r *redirectTarget) listen(a *attackRun) (string, error) {
	if at := r.address.Load(); at != nil {
		return *at, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	at := l.Addr().String()
	if !r.address.CompareAndSwap(nil, &at) {
		return *r.address.Load(), l.Close()
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			a.fault("a redirect was followed")
			_ = c.Close()
		}
	}()
	return at, nil
}
