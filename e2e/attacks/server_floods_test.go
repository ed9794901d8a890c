package attacks

import (
	"golang.org/x/net/http2"
)

// calm matches the ways in which the front door ends a flooding connection. A client that continues may not read the GOAWAY.
const calm = "ended: GOAWAY ENHANCE_YOUR_CALM|ended: closed"

// taken is the maximum number of frames on a connection before it ends: ten thousand empty frames, the number that is refilled
// over time, and the frames in the kernel's buffers, up to 6 MiB.
const taken = 500_000

// floodsProof is the test of the end of a flood without other clients.
const floodsProof = "http2.TestFloodMemoryIsBoundedAndOtherClientsAreServed"

func serverFloods() []*attackRow {
	waiting := func(p *peer) { p.open(false, request("POST", things())...) }
	watching := func(p *peer) { p.open(true, request("GET", things()+"?watch=1")...) }
	over := func(p *peer) { p.ask("GET", things()+"/small") } // stream 1 has ended
	ends := bound{Frames: taken, Outcomes: calm + "|answered: .*"}
	rows := []*attackRow{
		{name: "PING flood", cves: []string{"CVE-2019-9512"}, sends: "PING, as fast as possible", quick: true, hand: true,
			do: floods(nil, frame(http2.FramePing, 0, 0, "12345678"))},
		{name: "PING flood with unread acknowledgements", cves: []string{"CVE-2019-9512", "CVE-2019-9517"}, sends: "PING; the attacker reads nothing",
			do: deafFloods(nil, frame(http2.FramePing, 0, 0, "12345678")), bound: bound{Frames: taken, Outcomes: "ended: .*"}},
		{name: "SETTINGS flood", cves: []string{"CVE-2019-9515"}, sends: "empty SETTINGS", quick: true,
			do: floods(nil, frame(http2.FrameSettings, 0, 0, ""))},
		{name: "acknowledgement flood", cves: []string{"CVE-2019-9515"}, sends: "acknowledgements of SETTINGS that were not sent",
			do: floods(nil, frame(http2.FrameSettings, 1, 0, ""))},
		{name: "large SETTINGS flood", cves: []string{"CVE-2019-9515"}, sends: "SETTINGS of 16 KB that change windows, with a watch open",
			do: floods(watching, frame(http2.FrameSettings, 0, 0, large("\x00\x04\x00\x00\xff\xff", 2700)))},
		{name: "PRIORITY flood", cves: []string{"CVE-2019-9513"}, sends: "PRIORITY that repeatedly reorders one stream", quick: true,
			do: floods(nil, frame(http2.FramePriority, 0, 1, "\x00\x00\x00\x00\x10"))},
		{name: "RST_STREAM provoked by malformed requests", cves: []string{"CVE-2019-9514"}, sends: "requests without a path", quick: true,
			do:    floods(nil, func(p *peer) { p.open(true, ":method", "GET", ":scheme", "https", ":authority", "x") }),
			bound: bound{Frames: taken, Outcomes: calm + "|reset: PROTOCOL_ERROR|answered: 400|ended: GOAWAY PROTOCOL_ERROR"}},
		{name: "RST_STREAM flood on an ended stream", cves: []string{"CVE-2019-9514"}, sends: "RST_STREAM on one stream with a complete response",
			do: floods(over, frame(http2.FrameRSTStream, 0, 1, "\x00\x00\x00\x08"))},
		{name: "empty names and values", cves: []string{"CVE-2019-9516"}, sends: "header blocks of fields with empty names and values",
			do: floods(nil, func(p *peer) {
				p.opened(true, append(p.encode(request("GET", things()+"/small")...), repeat("\x00\x80\x80", 300)...))
			}), bound: bound{Frames: taken, Outcomes: calm + "|reset: PROTOCOL_ERROR|answered: .*|ended: GOAWAY (PROTOCOL_ERROR|COMPRESSION_ERROR)"}},
		{name: "unread responses", cves: []string{"CVE-2019-9517"}, sends: "GETs of 100 KB with windows of 2 GiB; the attacker reads nothing",
			do: deafFloods(func(p *peer) {
				_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
				_ = p.WriteWindowUpdate(0, 1<<30)
			}, func(p *peer) { p.open(true, request("GET", things())...) }),
			bound: bound{Frames: taken, Outcomes: "ended: .*|left open", Heap: 64}, proof: "server.TestD14UnreadResponseMemoryIsLimited"},
		{name: "empty DATA flood", cves: []string{"CVE-2019-9518"}, sends: "empty DATA on an open stream", quick: true,
			do: floods(waiting, frame(http2.FrameData, 0, 1, ""))},
		{name: "DATA with only padding", cves: []string{"CVE-2019-9518"}, sends: "DATA frames with only a padding length of zero, on an open stream",
			do: floods(waiting, frame(http2.FrameData, 8, 1, "\x00"))},
		{name: "data dribble", cves: []string{"CVE-2019-9511"}, sends: "GETs of 100 KB on 50 streams; the attacker opens their windows byte by byte", quick: true,
			do: floods(func(p *peer) {
				p.deaf.Store(true)
				for range 50 {
					p.open(true, request("GET", things())...)
				}
				_ = p.WriteWindowUpdate(0, 1<<30)
			}, func(p *peer) {
				for id := uint32(1); id < p.next; id += 2 {
					_ = p.WriteWindowUpdate(id, 1)
				}
			}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})},
		{name: "WINDOW_UPDATE of one byte", cves: []string{"CVE-2019-9511"}, sends: "WINDOW_UPDATE of one byte on the connection",
			do: floods(nil, frame(http2.FrameWindowUpdate, 0, 0, "\x00\x00\x00\x01")), bound: bound{Frames: taken, Outcomes: calm}},
		{name: "WINDOW_UPDATE on ended streams", cves: []string{"CVE-2019-9511"}, sends: "WINDOW_UPDATE of one byte on a stream with a complete response", quick: true, hand: true,
			do: floods(over, frame(http2.FrameWindowUpdate, 0, 1, "\x00\x00\x00\x01"))},
		{name: "DATA of one byte on ended streams", cves: []string{"CVE-2019-9511"}, sends: "DATA of one byte on a stream with a complete response", quick: true,
			do: floods(over, frame(http2.FrameData, 0, 1, "x")), bound: bound{Frames: taken, Outcomes: calm + "|answered: .*|reset: STREAM_CLOSED|ended: GOAWAY STREAM_CLOSED"}},
		{name: "DATA of one byte on reset streams", cves: []string{"CVE-2019-9511"}, sends: "DATA of one byte on a stream that the front door has reset",
			do: floods(func(p *peer) {
				waiting(p)
				_ = p.WriteRawFrame(http2.FrameWindowUpdate, 0, 1, make([]byte, 4))
			}, frame(http2.FrameData, 0, 1, "x")),
			bound: bound{Frames: taken, Outcomes: calm + "|answered: .*|reset: .*|ended: GOAWAY (STREAM_CLOSED|FLOW_CONTROL_ERROR)"}},
		{name: "WINDOW_UPDATE that wakes blocked streams", cves: []string{"CVE-2019-9511"}, sends: "GETs of 100 KB on 100 streams until the connection window is used up; the attacker then opens it byte by byte", quick: true,
			do: floods(func(p *peer) {
				p.deaf.Store(true)
				for range 100 {
					p.open(true, request("GET", things())...)
				}
			}, frame(http2.FrameWindowUpdate, 0, 0, "\x00\x00\x00\x01"), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}), bound: bound{Frames: taken, Heap: 64, Outcomes: calm + "|answered: .*"}},
	}
	for _, a := range rows {
		a.class = "floods"
		if a.bound == (bound{}) {
			a.bound = ends
		}
		if a.proof == "" {
			a.proof = floodsProof
		}
	}
	return rows
}

func repeat(what string, n int) []byte { return []byte(large(what, n)) }

func large(what string, n int) string {
	b := make([]byte, 0, len(what)*n)
	for range n {
		b = append(b, what...)
	}
	return string(b)
}

func serverResets() []*attackRow {
	opened := func(path string, end bool, then func(p *peer, id uint32)) func(*attackRun) {
		return floods(nil, func(p *peer) { then(p, p.open(end, request("GET", path)...)) })
	}
	raw := func(kind http2.FrameType, flags http2.Flags, payload string) func(*peer, uint32) {
		return func(p *peer, id uint32) { _ = p.WriteRawFrame(kind, flags, id, []byte(payload)) }
	}
	small := things() + "/small"
	cancel := func(p *peer, id uint32) { _ = p.WriteRSTStream(id, http2.ErrCodeCancel) }
	rapid := []string{"CVE-2023-44487", "CVE-2023-39325"}
	rows := []*attackRow{
		{class: "rapid-reset", name: "rapid reset", cves: rapid, sends: "a proxied GET with a credential, immediately followed by RST_STREAM", quick: true, hand: true,
			do: opened(small, true, cancel), proof: "http2.TestFloodMemoryIsBoundedAndOtherClientsAreServed, server.TestD1D2RapidStreamResetsCloseConnection"},
		{class: "rapid-reset", name: "rapid reset without a credential", cves: rapid, sends: "a GET without a credential, immediately followed by RST_STREAM",
			do:    floods(nil, func(p *peer) { cancel(p, p.open(true, nobody("GET", small)...)) }),
			proof: "server.TestD1UnauthenticatedConnectionGetsGoAway", bound: bound{Frames: taken, Outcomes: "ended: .*|answered: .*|reset: .*"}},
		{class: "rapid-reset", name: "more streams than allowed", cves: rapid, sends: "more watches than SETTINGS allow; the server refuses them",
			do: floods(nil, func(p *peer) { p.open(true, request("GET", things()+"?watch=1")...) }), proof: floodsProof,
			bound: bound{Frames: taken, Heap: 64, Outcomes: calm + "|answered: .*|reset: REFUSED_STREAM"}},
		{name: "reset provoked by a WINDOW_UPDATE of zero", sends: "a GET, and a WINDOW_UPDATE of 0", quick: true,
			do: opened(small, true, raw(http2.FrameWindowUpdate, 0, "\x00\x00\x00\x00"))},
		{name: "reset provoked by a window overflow", sends: "a GET, and a WINDOW_UPDATE of 2^31-1",
			do: opened(small, true, raw(http2.FrameWindowUpdate, 0, "\x7f\xff\xff\xff"))},
		{name: "reset provoked by DATA after END_STREAM", sends: "a GET with END_STREAM, and DATA",
			do: opened(small, true, raw(http2.FrameData, 0, "x"))},
		{name: "reset provoked by HEADERS after END_STREAM", sends: "a GET with END_STREAM, and HEADERS",
			do: opened(small, true, raw(http2.FrameHeaders, 5, "\x82"))},
		{name: "reset provoked by a stream that depends on itself", sends: "a GET, and a PRIORITY that makes it depend on itself",
			do: opened(small, true, func(p *peer, id uint32) { _ = p.WritePriority(id, http2.PriorityParam{StreamDep: id, Weight: 1}) })},
		{name: "reset provoked by a PRIORITY of invalid length", sends: "a GET, and a PRIORITY of 3 bytes",
			do: opened(small, true, raw(http2.FramePriority, 0, "bad"))},
		{name: "reset provoked by a body longer than its Content-Length", sends: "a POST of 1 byte, and DATA of 5",
			do: floods(nil, func(p *peer) {
				_ = p.WriteData(p.open(false, request("POST", things(), "content-length", "1")...), false, []byte("12345"))
			})},
	}
	for _, a := range rows {
		if a.class == "" {
			a.class, a.cves, a.proof = "made-you-reset", []string{"CVE-2025-8671"}, "http2.TestFloodMemoryIsBoundedAndOtherClientsAreServed, server.TestD1D2RapidStreamResetsCloseConnection"
			a.bound.Outcomes = calm + "|answered: .*|reset: .*|ended: GOAWAY (STREAM_CLOSED|PROTOCOL_ERROR|FRAME_SIZE_ERROR)"
		}
		if a.bound.Outcomes == "" {
			a.bound.Outcomes = calm + "|answered: .*"
		}
		a.bound.Frames = taken
	}
	return rows
}
