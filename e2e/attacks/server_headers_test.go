package attacks

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// literal returns a header block of fields that are not stored in the dynamic table.
func literal(fields ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for i := 0; i+1 < len(fields); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1], Sensitive: true})
	}
	return b.Bytes()
}

// refused matches the permitted results of headers that are too large or invalid.
const refused = calm + "|answered: (400|431|401|403)|reset: .*|ended: GOAWAY (PROTOCOL_ERROR|COMPRESSION_ERROR|FRAME_SIZE_ERROR|NO_ERROR)"

func serverHeaders() []*attackRow {
	endless := func(p *peer) {
		_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.encode(request("GET", things()+"/small")...)})
	}
	mute := func(begin func(*peer)) func(*peer) { // an acknowledgement within the block would be invalid
		return func(p *peer) {
			p.mute.Store(true)
			begin(p)
		}
	}
	filler := literal("x", strings.Repeat("y", 8000))
	bombSize := 16_000
	small := things() + "/small"
	rows := []*attackRow{
		{class: "continuation", name: "CONTINUATION flood", cves: []string{"CVE-2023-45288", "CVE-2024-27316", "CVE-2024-30255"}, sends: "an endless header block with CONTINUATIONs of 8 KB", quick: true, hand: true,
			do: floods(mute(endless), func(p *peer) { _ = p.WriteContinuation(1, false, filler) })},
		{class: "continuation", name: "CONTINUATION flood of small fields", cves: []string{"CVE-2024-28182", "CVE-2024-27983"}, sends: "an endless header block with CONTINUATIONs of one field each",
			do: floods(mute(endless), func(p *peer) { _ = p.WriteContinuation(1, false, []byte("\x00\x01a\x01b")) })},
		{class: "continuation", name: "CONTINUATION flood of zero length", cves: []string{"CVE-2026-33871"}, sends: "an endless header block with empty CONTINUATIONs", quick: true,
			do: floods(mute(endless), frame(http2.FrameContinuation, 0, 1, ""))},
		{class: "continuation", name: "incomplete CONTINUATION, then a new connection", cves: []string{"CVE-2024-27983"}, sends: "HEADERS and one CONTINUATION; then the attacker drops the connection",
			do: func(a *attackRun) {
				a.again(4, func() error {
					p, err := a.greet()
					if err != nil {
						return err
					}
					p.mute.Store(true)
					endless(p)
					_ = p.WriteContinuation(1, false, filler)
					err = p.flush()
					a.mostOf(p.frames)
					a.came("dropped")
					a.close(p.conn.NetConn())
					return err
				})
			}, bound: bound{Outcomes: "dropped|no connection: .*|ended: .*"}},

		{class: "hpack", name: "header bomb", cves: []string{"CVE-2016-6581"}, sends: "references of one byte to a field of 3.9 KB, 16,000 in a block", quick: true, hand: true,
			do: floods(nil, func(p *peer) {
				p.opened(true, append(p.encode(request("GET", small, "bomb", strings.Repeat("b", 3900))...), repeat("\xbe", bombSize)...))
			}), bound: bound{CPU: 8}},
		{class: "hpack", name: "Huffman decoding", cves: []string{"CVE-2022-41723"}, sends: "60 KB of Huffman codes in one field that is not stored in the dynamic table",
			do: floods(nil, func(p *peer) {
				p.long(true, append(p.encode(request("GET", small)...), huffman("x-huffman", strings.Repeat("0", 60_000))...))
			}), bound: bound{CPU: 30, P99: time.Second, Outcomes: refused + "|answered: 200|left open"}},
		{class: "hpack", name: "many tiny fields", sends: "1,500 fields of two bytes in one block",
			do: floods(nil, func(p *peer) {
				p.opened(true, append(p.encode(request("GET", small)...), repeat("\x10\x01a\x01b", 1500)...))
			}), bound: bound{CPU: 60, P99: 2 * time.Second, Outcomes: refused + "|answered: .*|left open"}},
		{class: "hpack", name: "cookie crumbs", sends: "one header block with 1,500 Cookie fields, which the server has to join",
			do: floods(nil, func(p *peer) {
				p.opened(true, append(p.encode(request("GET", small)...), repeat("\x0f\x11\x01b", 1500)...))
			}), bound: bound{CPU: 60, P99: 2 * time.Second, Outcomes: refused + "|answered: .*|left open"}},
		{class: "hpack", name: "one-byte references with closed windows", sends: "1,500 references of one byte on each of 100 concurrent streams; all windows are zero, so that no stream ends", quick: true,
			do: holding(8, func(p *peer) {
				head := p.encode(request("GET", things(), "a", "b")...)
				for range 100 {
					p.opened(true, append(bytes.Clone(head), repeat("\xbe", 1200)...))
					head = p.encode(request("GET", things())...)
				}
			}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}), bound: bound{Memory: 512, Heap: 320, CPU: 100, P99: 2 * time.Second, Outcomes: refused + "|answered: .*|held"},
			proof: "server.TestD14UnreadResponseMemoryIsLimited"},
		{class: "hpack", name: "changes of the dynamic table size", sends: "4,000 changes of the dynamic table size in one header block",
			do: floods(nil, func(p *peer) {
				p.opened(true, append(repeat("\x20\x3f\xe1\x1f", 4000), p.encode(request("GET", small)...)...))
			}), bound: bound{CPU: 30, P99: time.Second, Outcomes: refused + "|answered: .*|left open"}},
		{class: "hpack", name: "one oversized header block on a shared connection", sends: "occasional headers of 1.1 MB; other requests on the same connection must get responses", quick: true,
			do: sharing, bound: bound{Outcomes: "answered: (200|431)|reset: .*|left open"}, proof: "http2.TestD15RepeatedOversizedHeadersEndConnection"},
		{class: "hpack", name: "consecutive oversized header blocks", sends: "headers of 1.1 MB",
			do: floods(nil, func(p *peer) {
				p.long(true, append(p.encode(request("GET", small)...), repeat(string(literal("x-filler", strings.Repeat("y", 1000))), 1100)...))
			}), bound: bound{CPU: 30}, proof: "http2.TestD15RepeatedOversizedHeadersEndConnection"},

		{class: "unexpected", name: "random frames", cves: []string{"CVE-2026-27141"}, sends: "frames of known and unknown types, with random flags, lengths and streams", quick: true, hand: true,
			do: random(false), bound: bound{Outcomes: "ended: .*|reset: .*|answered: .*|left open|no connection: .*"}, proof: "http2.TestInvalidClientFramesAreRejected"},
		{class: "unexpected", name: "frames after GOAWAY", cves: []string{"CVE-2026-27135"}, sends: "GOAWAY, and then frames of every type",
			do: random(true), bound: bound{Outcomes: "ended: .*|reset: .*|answered: .*|left open|no connection: .*"}, proof: "http2.TestInvalidClientFramesAreRejected"},
		{class: "unexpected", name: "frames of an unknown type", sends: "frames of an unknown type", proof: "server.TestD4UnknownFramesAreIgnored",
			do: floods(nil, frame(0x77, 0, 0, "")), bound: bound{Outcomes: calm}},
		{class: "unexpected", name: "frames after the front door's GOAWAY", sends: "PING until GOAWAY ENHANCE_YOUR_CALM, and more PING after it", proof: floodsProof,
			do: floods(func(p *peer) { p.past = true }, frame(http2.FramePing, 0, 0, "12345678")), bound: bound{Frames: 3_000_000, Outcomes: calm}},
	}
	for _, size := range []uint32{0, 1, 16_383, 1 << 24, 1<<32 - 1} {
		rows = append(rows, &attackRow{class: "frame-size", name: fmt.Sprintf("maximum frame size %d", size), cves: []string{"CVE-2026-33814"},
			sends: fmt.Sprintf("GETs of 100 KB, and SETTINGS_MAX_FRAME_SIZE %d", size), quick: size == 0, hand: size == 0,
			do: floods(func(p *peer) { p.open(true, request("GET", things())...) }, func(p *peer) {
				_ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: size})
				p.open(true, request("GET", things())...)
			}), bound: bound{Frames: taken, Outcomes: "answered: .*|reset: .*|ended: GOAWAY PROTOCOL_ERROR|ended: closed"}, proof: "http2.TestInvalidClientFramesAreRejected"})
	}
	for _, a := range rows {
		if a.bound.Outcomes == "" {
			a.bound.Outcomes = refused
		}
		if a.bound.Frames == 0 {
			a.bound.Frames = taken
		}
		if a.proof == "" {
			a.proof = map[string]string{"continuation": "http2.TestFloodMemoryIsBoundedAndOtherClientsAreServed, server.TestD3EndlessHeadersCloseConnection", "hpack": "http2.TestHeaderBombIsRejected, server.TestD4HeaderLimitAppliesToDecodedSize"}[a.class]
		}
	}
	return rows
}

// huffman encodes a literal field with a Huffman-coded value.
func huffman(name, value string) []byte {
	b := append([]byte{0x10, byte(len(name))}, name...)
	n := hpack.HuffmanEncodeLength(value)
	b = append(b, 0xff)
	for n -= 127; n >= 128; n >>= 7 {
		b = append(b, byte(n&127)|128)
	}
	return hpack.AppendHuffmanString(append(b, byte(n)), value)
}

// holding is an attack with open connections: begin is called once for each connection, which then stays open.
func holding(many int, begin func(*peer), settings ...http2.Setting) func(*attackRun) {
	return func(a *attackRun) {
		var all []*peer
		for range many {
			p, err := a.greet(settings...)
			if err != nil {
				a.came("no connection: %s", brief(err))
				continue
			}
			begin(p)
			if err := p.flush(); err == nil {
				a.came("held")
			}
			a.mostOf(p.frames)
			all = append(all, p)
		}
		a.rest()
		for _, p := range all {
			select {
			case <-p.told:
				a.came("ended: %s", p.word())
			default:
			}
		}
	}
}

// sharing is an attack on a connection with other requests: some header blocks are oversized.
func sharing(a *attackRun) {
	a.again(1, func() error {
		p, err := a.greet()
		if err != nil {
			return err
		}
		filler := repeat(string(literal("x-filler", strings.Repeat("y", 1000))), 1100)
		for range 3 {
			p.long(true, append(p.encode(request("GET", things()+"/small")...), filler...))
			for range 5 {
				if got := p.ask("GET", things()+"/small"); got != "200" && !a.over() {
					a.fault("after an oversized header block, the response to a request on the same connection was %q", got)
				}
			}
		}
		p.leave()
		return nil
	})
}

// random sends random frames on connections that begin with valid frames.
func random(left bool) func(*attackRun) {
	return func(a *attackRun) {
		r := rand.New(rand.NewPCG(1, 2)) // the same frames every time
		a.again(1, func() error {
			p, err := a.greet()
			if err != nil {
				return err
			}
			p.open(false, request("POST", things())...)
			if left {
				_ = p.WriteGoAway(0, http2.ErrCodeNo, nil)
			}
			payload := make([]byte, 64)
			for range 50 {
				for i := range payload {
					payload[i] = byte(r.Uint32())
				}
				_ = p.WriteRawFrame(http2.FrameType(r.IntN(13)), http2.Flags(r.Uint32()), uint32(r.IntN(6)), payload[:r.IntN(len(payload))])
				if p.ended() || p.flush() != nil {
					break
				}
			}
			p.leave()
			return nil
		})
	}
}
